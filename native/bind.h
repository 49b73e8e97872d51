// What each native part adds to the module `unstarve._native`.
#pragma once

#include <nanobind/nanobind.h>

void bind_formats(nanobind::module_ &module);
void bind_reader(nanobind::module_ &module);
