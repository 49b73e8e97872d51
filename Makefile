# Every target sets up what it needs in .venv; the second time there is nothing to set up.
# PYTHON=python3.12 make test    chooses the interpreter for a new .venv
# make test ARGS="-k gather"     passes arguments on, also to demo and bench

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
ARGS ?=
# What goes over a network may fail once.
TWICE = { $(1) || { echo "once more: $(1)" >&2; sleep 5; $(1); }; }

export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

FRAMEWORKS := .venv-frameworks

.PHONY: help demo docs docs-serve test test-frameworks lint bench fuzz wheel dist man native-check web web-check clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    a slow loader, its verdict, the fix and the proof, in under a minute"
	@echo "make test    all tests"
	@echo "make test-frameworks   the same against the real frameworks and data libraries"
	@echo "make lint    ruff, mypy --strict, import rules, schemas of the workflows, hadolint"
	@echo "make bench   what unstarve itself costs"
	@echo "make native-check   the native tests under ASan, UBSan and TSan"
	@echo "make fuzz    hostile files and requests for minutes; ARGS=\"--seconds 3600\" for longer"
	@echo "make web            build the pages from web/ into the package"
	@echo "make wheel          a wheel with libjpeg-turbo in it, and a check that it is"
	@echo "make dist           that wheel and a source distribution, both tried in empty environments"
	@echo "make man            the manual page, into build/unstarve.1"
	@echo "make docs           the documentation, into build/site; make docs-serve shows it"
	@echo "make clean   remove everything these made"

demo: $(VENV)/.built
	@$(BIN)/unstarve demo $(ARGS)

# Most tests wait for processes they start, so four at a time share two cores well.
test: $(VENV)/.built
ifeq ($(ARGS),)
	@$(BIN)/python -m pytest -q -n 4 --dist worksteal --maxfail=20 --ignore=tests/frameworks
else
	@$(BIN)/python -m pytest $(ARGS)
endif

# Against the real packages, where they can be installed. Their own warnings are not errors.
test-frameworks: $(VENV)/.built
	@if $(MAKE) --no-print-directory $(FRAMEWORKS)/.installed; then \
	  $(FRAMEWORKS)/bin/python -m pytest -q -n 2 --dist loadfile -W default tests/frameworks $(ARGS); \
	else \
	  echo "the frameworks cannot be installed: they are not tested"; \
	fi

SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema vendor.
lint: $(VENV)/.built
	@echo "ruff check" && $(BIN)/ruff check
	@echo "ruff format --check" && $(BIN)/ruff format --check
	@echo "mypy --strict" && $(BIN)/mypy --strict
	@echo "lint-imports" && $(BIN)/lint-imports
	@echo "check-jsonschema"
	@$(SCHEMA)github-workflows .github/workflows/*.yml
	@$(SCHEMA)github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	@$(SCHEMA)github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(SCHEMA)compose-spec compose.yaml
	@if test -x $(BIN)/hadolint; then echo "hadolint" && $(BIN)/hadolint Dockerfile; fi

bench: $(VENV)/.built
	@$(BIN)/python bench/overhead.py $(ARGS)

# Each sanitizer has a build folder of its own; CMake and Ninja come with the requirements.
native-check: $(VENV)/.requirements $(VENV)/.jpeg
	@for sanitizer in address,undefined thread; do \
	  folder=build/native-check-$${sanitizer%%,*}; \
	  PATH="$(CURDIR)/$(BIN):$$PATH" && \
	  cmake -S . -B $$folder -DCMAKE_BUILD_TYPE=RelWithDebInfo -DUNSTARVE_NATIVE_TESTS=ON -DUNSTARVE_WERROR=ON \
	    -DUNSTARVE_SANITIZE=$$sanitizer > /dev/null && \
	  cmake --build $$folder --parallel > /dev/null && \
	  echo "native tests under $$sanitizer" && \
	  ctest --test-dir $$folder --output-on-failure $(ARGS) || exit 1; \
	done

# What reads others' input is fed hostile input: through Python, and natively under ASan and UBSan.
FUZZED := build/native-check-address
fuzz: $(VENV)/.built
	@PATH="$(CURDIR)/$(BIN):$$PATH" && \
	  cmake -S . -B $(FUZZED) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DUNSTARVE_NATIVE_TESTS=ON -DUNSTARVE_WERROR=ON \
	    -DUNSTARVE_SANITIZE=address,undefined > /dev/null && \
	  cmake --build $(FUZZED) --parallel --target fuzz_formats fuzz_jpeg > /dev/null
	@$(BIN)/python -m fuzz --native $(FUZZED) $(ARGS)

# Nothing in the built pages is loaded from elsewhere; a broken link or anchor ends the build (not under --quiet).
docs: $(VENV)/.built
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.built
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# A wheel brings the libraries along that its users may not have: libjpeg-turbo.
wheel: $(VENV)/.built
	@rm -rf dist build/wheel
	@$(PIP) wheel -qq --no-build-isolation --no-deps -w build/wheel .
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl > build/wheel/repair.txt 2>&1 || { cat build/wheel/repair.txt; exit 1; }
	@$(BIN)/python tools/check_wheel.py dist/*.whl

# What a release consists of, for this Python and machine.
dist: wheel man
	@$(BIN)/python -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")' > build/sdist.txt 2>&1 || { cat build/sdist.txt; exit 1; }
	@$(BIN)/python tools/smoke_test.py dist/*

man: $(VENV)/.built
	@mkdir -p build && $(BIN)/python tools/man_page.py build/unstarve.1

# The built page is part of the package, so that nobody needs Node to use it; web-check tells when it is stale.
web: web/node_modules/.installed
	@cd web && npm run --silent build

web-check: web/node_modules/.installed
	@rm -rf build/package
	@cd web && UNSTARVE_PACKAGE=../build/package npm run --silent build
	@for folder in present/page/built web/page; do \
	  diff -r build/package/$$folder src/unstarve/$$folder || \
	    { echo "the built pages are stale: run make web" >&2; exit 1; }; done

web/node_modules/.installed: web/package.json web/package-lock.json
	@cd web && $(call TWICE,npm install --silent --no-save --no-audit --no-fund)
	@touch $@

clean:
	@rm -rf $(VENV) $(FRAMEWORKS) build dist web/node_modules unstarve-demo .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find src tests bench fuzz labs -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# An interpreter that is new enough, and a virtual environment made by it.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: '$(PYTHON)' is not a command; install Python 3.11 or newer, or set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: unstarve needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V); set PYTHON=" >&2; \
	  exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv $(VENV)

# What pyproject.toml names: to build, to run, to develop. The build's own wishes (CMake, Ninja) come last,
# because only the installed build backend knows whether the system has them.
$(VENV)/.requirements: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing requirements"
	@$(BIN)/python -c 'import tomllib; \
	  all = tomllib.load(open("pyproject.toml", "rb")); \
	  project = all["project"]; \
	  print(*all["build-system"]["requires"], *project["dependencies"], \
	        *sum((wanted for name, wanted in project["optional-dependencies"].items() if name not in ("frameworks", "ray")), []), \
	        sep="\n")' > $@.txt
	@$(call TWICE,$(PIP) install -qq -r $@.txt)
	@$(BIN)/python -c 'from scikit_build_core.build import get_requires_for_build_editable as wishes; \
	  print(*wishes(), sep="\n")' > $@.txt
	@$(call TWICE,$(PIP) install -qq -r $@.txt)
	@touch $@

# Images are decoded natively where libjpeg-turbo's header is; root on Debian gets it. Tried once per .venv.
HAS_JPEG = printf '%s\n' '\#include <cstdio>' '\#include <jpeglib.h>' | $(CXX) -x c++ -fsyntax-only - 2> /dev/null
GET_JPEG = DEBIAN_FRONTEND=noninteractive apt-get install -y -qq libjpeg-dev > /dev/null 2>&1
$(VENV)/.jpeg: | $(BIN)/python
	@if command -v $(CXX) > /dev/null && ! { $(HAS_JPEG); }; then \
	  if test "$$(id -u)" = 0 && command -v apt-get > /dev/null; then \
	    echo "installing libjpeg-turbo, which decodes images natively"; \
	    $(GET_JPEG) || { apt-get update -qq > /dev/null 2>&1 && $(GET_JPEG); } || true; \
	  fi; \
	  { $(HAS_JPEG); } || \
	    echo "no libjpeg-turbo (Debian: libjpeg62-turbo-dev): Pillow will decode images, more slowly"; \
	fi
	@touch $@

# The names of all modules: an editable install knows them one by one, so it is made anew when one moves.
SOURCES := $(sort $(shell find src -name '*.py'))
.PHONY: FORCE
$(VENV)/.sources: FORCE | $(BIN)/python
	@echo '$(SOURCES)' | cmp -s - $@ || echo '$(SOURCES)' > $@

# The package itself, editable: edits to src/ need no new build, edits to native/ come through here.
$(VENV)/.built: $(VENV)/.requirements $(VENV)/.jpeg $(VENV)/.sources CMakeLists.txt $(wildcard native/*)
	@echo "building unstarve"
	@$(PIP) install -qq --no-build-isolation --no-deps -e .
	@$(BIN)/python -c 'from unstarve.native import why_not_native as why; print(why() or "in use")' > $@.txt
	@echo "native code: $$(cat $@.txt)"
	@! grep -q "not built" $@.txt || echo "to see why: $(PIP) install -v --no-build-isolation --no-deps -e ."
	@touch $@

# The frameworks lie over .venv, which stays as it is: what make test uses has none of them.
# mosaicml-streaming asks for every cloud's library, and for older ones than others need. DALI's CPU operators
# need none of the CUDA libraries that it asks for; its wheels exist for Linux alone.
DALI := $(FRAMEWORKS)/bin/python -m pip --disable-pip-version-check install -qq --no-deps \
  "nvidia-dali-cuda130==2.4.0" "nvidia-nvimgcodec-cu13>=0.9,<0.10" \
  optree "gast<=0.7.0" "astunparse<=1.6.3" six packaging
$(FRAMEWORKS)/.installed: pyproject.toml constraints.txt $(VENV)/.requirements
	@echo "installing frameworks"
	@rm -rf $(FRAMEWORKS) && $(BIN)/python -m venv --without-pip $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -c 'import sysconfig; \
	  below = sysconfig.get_path("purelib", vars={"base": "$(CURDIR)/$(VENV)"}); \
	  open(sysconfig.get_path("purelib") + "/_below.pth", "w").write(f"import site; site.addsitedir({below!r})\n")'
	@sed '1s|.*|#!$(CURDIR)/$(FRAMEWORKS)/bin/python|' $(BIN)/unstarve > $(FRAMEWORKS)/bin/unstarve
	@chmod +x $(FRAMEWORKS)/bin/unstarve
	@$(BIN)/python -c 'import tomllib; \
	  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*project["optional-dependencies"]["frameworks"], sep="\n")' > $@.txt
	@$(FRAMEWORKS)/bin/python -m pip --disable-pip-version-check install -qq -r $@.txt
	@$(FRAMEWORKS)/bin/python -m pip --disable-pip-version-check install -qq --no-deps mosaicml-streaming
	@$(DALI) || echo "DALI is not to be had: it is not tested"
	@touch $@
