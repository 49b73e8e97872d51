import { defineConfig } from "vite";

// One script and one style sheet without hashes in their names: Python puts them into every page it writes.
export default defineConfig({
  build: {
    outDir: "../src/unstarve/present/page",
    emptyOutDir: false,
    target: "es2022",
    cssCodeSplit: false,
    lib: { entry: "src/main.ts", formats: ["iife"], name: "unstarve", fileName: () => "page.js", cssFileName: "page" },
  },
});
