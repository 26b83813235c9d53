// make_run.hpp: chooses the engine of a plan, once: the step machine, the inline program, one-shot or two-shot.
#pragma once
#include <memory>

#include "src/executor/run.hpp"

namespace weft::internal {

// The plan must outlive the run.
std::unique_ptr<Run> make_run(const Plan& plan);

}  // namespace weft::internal
