#include "src/msccl/msccl_operands.hpp"

namespace weft::internal::msccl {

std::string OperandLocations::name(const StepId& at) const {
    return fmt::format("gpu {}, tb {}, step {}", at.rank, id_of(at), at.step);
}

std::string OperandLocations::name_and_line(const StepId& at) const {
    return fmt::format("{} (line {})", name(at), step_at(at).mark.line);
}

std::string OperandLocations::text(const Operand& operand, int i) {
    return fmt::format("{}[{}]",
                       operand.buffer == Buffer::input    ? "i"
                       : operand.buffer == Buffer::output ? "o"
                                                          : "s",
                       int64_t(operand.offset) + i);
}

Status OperandLocations::locate(const StepId& here, const Operand& operand, int i, OperandLocation& location) const {
    const int64_t offset = int64_t(operand.offset) + i;
    location = {};
    if (operand.buffer == Buffer::scratch) {
        const int32_t length = file_.gpus[size_t(here.rank)].scratch_chunks;
        if (offset >= length)
            return wrong(here, "{} is out of range: s_chunks of gpu {} is {}", text(operand, i), here.rank, length);
        location.key = offset;
        return ok();
    }
    const bool is_input = operand.buffer == Buffer::input;
    const Held held = is_input ? input_of(shape_.collective, here.rank, shape_.root)
                               : output_of(shape_.collective, here.rank, shape_.root);
    const bool own = held == Held::own;
    const int32_t length = own ? shape_.shares() : shape_.chunks;
    if (offset >= length)
        return wrong(here, "{} is out of range: the {} of gpu {} has {} chunks", text(operand, i),
                     name_of(operand.buffer), here.rank, length);
    location.chunk = int32_t(offset) + (own ? here.rank * shape_.shares() : 0);
    location.key = (int64_t(is_input || file_.in_place ? 1 : 2) << 32) + location.chunk;
    const int part = location.chunk / shape_.shares();
    location.initial =
        (is_input || file_.in_place) && holds(input_of(shape_.collective, here.rank, shape_.root), part, here.rank);
    location.output =
        (!is_input || file_.in_place) && holds(output_of(shape_.collective, here.rank, shape_.root), part, here.rank);
    return ok();
}

Status OperandLocations::find_stays(const StepId& here, int i, bool& stays) const {
    stays = false;
    const Step& step = step_at(here);
    if (step.opcode != Opcode::copy) return ok();
    OperandLocation source, target;
    WEFT_TRY(locate(here, step.source, i, source));
    WEFT_TRY(locate(here, step.target, i, target));
    stays = source.key == target.key;
    return ok();
}

}  // namespace weft::internal::msccl
