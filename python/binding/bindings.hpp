// bindings.hpp: each source adds its functions and classes to the module weft._weft.
#pragma once
#include <nanobind/nanobind.h>

#include "python/binding/gil.hpp"

namespace nb = nanobind;

namespace weft::python {

// Every function that calls the library, or Python, has it as its last attribute.
using InFrame = nb::call_guard<Frame>;

void bind_collectives(nb::module_& module);
void bind_messages(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_training_shard(nb::module_& module);
void bind_training_local(nb::module_& module);
void bind_training_server(nb::module_& module);
void bind_training_stragglers(nb::module_& module);

}  // namespace weft::python
