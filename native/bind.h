// What each native part adds to the module `unstarve._native`.
#pragma once

#include <nanobind/nanobind.h>

void bind_collect(nanobind::module_ &module);
void bind_wait(nanobind::module_ &module);
