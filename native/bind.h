// What each native part adds to the module `unstarve._native`.
#pragma once

#include <nanobind/nanobind.h>

void bind_columns(nanobind::module_ &module);
void bind_draws(nanobind::module_ &module);
void bind_images(nanobind::module_ &module);
void bind_file_table(nanobind::module_ &module);
void bind_formats(nanobind::module_ &module);
void bind_reader(nanobind::module_ &module);
void bind_batches(nanobind::module_ &module);
void bind_collect(nanobind::module_ &module);
void bind_wait(nanobind::module_ &module);
