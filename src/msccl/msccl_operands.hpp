// msccl_operands.hpp: the place in a gpu's memory that an operand of a step names, and the names of steps and places in
// messages.
#pragma once
#include <string>
#include <utility>

#include "src/msccl/msccl_xml.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::msccl {

struct Shape {
    Collective collective = Collective::none;
    int32_t ranks = 1;
    int32_t chunks = 1;
    int32_t root = -1;
    int parts() const { return parts_of(collective, ranks); }
    int shares() const { return chunks / parts(); }
};

struct StepId {
    int32_t rank = -1, block = -1, step = -1;  // block: its index, not its id
    auto operator<=>(const StepId&) const = default;
};

// A place that a step names. In place, a place of the input and one of the output can be the same.
struct OperandLocation {
    int64_t key = 0;
    int32_t chunk = -1;                    // of the whole; -1: in scratch
    bool initial = false, output = false;  // whether the input or the result can be there
};

// Of a file, which must outlive it. Reentrant.
class OperandLocations {
  public:
    OperandLocations(const File& file, const Shape& shape) : file_(file), shape_(shape) {}

    // weftInvalidArgument: the gpu has no such place.
    Status locate(const StepId& here, const Operand& operand, int i, OperandLocation& location) const;
    // Whether the step copies its chunk `i` onto itself, which is no access.
    Status find_stays(const StepId& here, int i, bool& stays) const;

    const Step& step_at(const StepId& at) const {
        return file_.gpus[size_t(at.rank)].blocks[size_t(at.block)].steps[size_t(at.step)];
    }
    int id_of(const StepId& at) const { return file_.gpus[size_t(at.rank)].blocks[size_t(at.block)].id; }
    // "gpu 0, tb 1, step 2", with the numbers of the file. A step other than the sentence's own is named with its line.
    std::string name(const StepId& at) const;
    std::string name_and_line(const StepId& at) const;
    static std::string text(const Operand& operand, int i);  // "s[3]"
    template <class... Arguments>
    Status wrong(const StepId& at, fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
        return wrong(error::schedule_msccl, at, format, std::forward<Arguments>(arguments)...);
    }
    template <class... Arguments>
    Status wrong(ErrorId error, const StepId& at, fmt::format_string<Arguments...> format,
                 Arguments&&... arguments) const {
        return xml::fail_at(error, step_at(at).mark, "{}: {}", name(at),
                            fmt::format(format, std::forward<Arguments>(arguments)...));
    }

  private:
    const File& file_;
    const Shape shape_;
};

}  // namespace weft::internal::msccl
