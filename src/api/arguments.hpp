// arguments.hpp: checks that several kinds of call share.
#pragma once
#include "src/base/datatype.hpp"
#include "src/base/result.hpp"
#include "src/comm/handle.hpp"

namespace weft::internal {

inline Status check_type(weftDataType_t type) {
    if (is_datatype(type)) [[likely]]
        return ok();
    return fail(error::argument_datatype, "datatype is {}; types are 0 to {}", int(type), weftNumTypes - 1);
}

inline Status check_count(size_t count, int parts) {
    if (count <= (size_t(1) << 48) / size_t(parts)) [[likely]]
        return ok();
    return fail(error::argument_count, "count is {}, which is more elements{} than any memory holds", count,
                parts > 1 ? " for each rank" : "");
}

inline Status check_rank(const char* name, int rank, int ranks) {
    if (rank >= 0 && rank < ranks) [[likely]]
        return ok();
    return fail(error::argument_rank, "{} is {}; it must be a rank from 0 to {}", name, rank, ranks - 1);
}

// Writes the type and the reduction into the operation and the operand.
inline Status check_reduction(weftComm* comm, weftDataType_t type, weftRedOp_t op, Operation& operation,
                              Operand& operand) {
    WEFT_TRY(check_type(type));
    operation.type = uint8_t(type);
    if (op >= 0 && op < weftNumOps) [[likely]] {
        if (!serves(op, type)) [[unlikely]]
            return fail(error::argument_reduction,
                        "op is {}, a bitwise reduction, but the buffers hold {}; bitwise reductions "
                        "need an integer type, int8 to uint64",
                        name_of(op), name_of(type));
        operation.op = uint8_t(op);
        return ok();
    }
    const MadeReduction* made = comm->communicator->inputs().reductions.find(op);
    if (!made)
        return fail(error::argument_reduction,
                    "op is {}; it must be 0 to {}, or a reduction that weftRedOpCreate or "
                    "weftRedOpCreatePreMulSum made on this communicator",
                    int(op), weftNumOps - 1);
    if (made->type != type)
        return fail(error::argument_reduction, "op {} was made for {}, but the buffers hold {}", int(op),
                    name_of(made->type), name_of(type));
    operation.op = made->op;
    operand = {made->operand(), op, made->on_device != nullptr};
    return ok();
}

}  // namespace weft::internal
