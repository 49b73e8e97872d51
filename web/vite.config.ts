import { defineConfig } from "vite";

// Two bundles, each one script and one style sheet without hashes in their names: `page` is put into every page
// that Python writes, `app` is what `unstarve serve` shows. UNSTARVE_PACKAGE is where they go: to compare, elsewhere.
const BUNDLES: Record<string, { entry: string; folder: string }> = {
  page: { entry: "src/main.ts", folder: "present/page/built" },
  app: { entry: "src/app/main.ts", folder: "web/page" },
};

export default defineConfig(({ mode }) => {
  const bundle = BUNDLES[mode];
  if (!bundle) throw new Error(`vite build --mode ${Object.keys(BUNDLES).join(" | --mode ")}`);
  return {
    // A build's mode names its bundle; the libraries in it are to be built as for users all the same.
    define: { "process.env.NODE_ENV": '"production"' },
    build: {
      outDir: `${process.env["UNSTARVE_PACKAGE"] ?? "../src/unstarve"}/${bundle.folder}`,
      emptyOutDir: false,
      target: "es2022",
      cssCodeSplit: false,
      lib: { entry: bundle.entry, formats: ["iife"], name: "unstarve", fileName: () => `${mode}.js`, cssFileName: mode },
    },
  };
});
