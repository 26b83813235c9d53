#include "src/gpu/kernels/kernels.hpp"

#include <array>
#include <cassert>

#include "src/base/arithmetic.hpp"

namespace weft::internal::cuda {

namespace {

constexpr const char* names[] = {
#define WEFT_KERNEL(name, needs, help) #name,
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
};

struct EntryPoint {
    char name[48] = {};
    size_t length = 0;

    constexpr void append(const char* text) {
        for (; *text != 0; ++text) name[length++] = *text;
    }
};

using EntryPoints = std::array<std::array<std::array<EntryPoint, 2>, weftNumTypes>, body_count>;

constexpr EntryPoints make_entry_points() {
    EntryPoints all{};
    for (int body = 0; body < body_count; ++body)
        for (int type = 0; type < weftNumTypes; ++type)
            for (int sums = 0; sums < 2; ++sums) {
                EntryPoint& entry = all[size_t(body)][size_t(type)][size_t(sums)];
                for (const char* part : {"weft_", names[body], "_", datatype_names[type], sums ? "_sum" : "_other"})
                    entry.append(part);
            }
    return all;
}
constexpr EntryPoints entry_points = make_entry_points();

}  // namespace

const char* name_of(Body body) { return names[int(body)]; }

std::string_view name_of_lacking(uint32_t capabilities) {
#define WEFT_CAPABILITY(name, what) \
    if (capabilities & name) return what;
#include "src/gpu/kernels/capability.def"
#undef WEFT_CAPABILITY
    return {};
}

void bind_operation(KernelArguments& a, const Operation& operation, int ranks, bool in_one_place) {
    const CollectiveFacts facts = facts_of(operation.collective);
    const auto op = weftRedOp_t(operation.op);
    a.op = adds(op) ? weftSum : op;
    a.unsigned_elements = kernel_type(weftDataType_t(operation.type)) != weftDataType_t(operation.type);
    const Averaging average =
        op == weftAvg ? averaging(weftDataType_t(operation.type), uint32_t(ranks), in_one_place) : Averaging{};
    a.average_of = average.average_of;
    if (a.average_of != 0 && a.unsigned_elements) a.average_of |= KernelArguments::of_unsigned;
    a.share_of = average.share_of;
    a.rounds_shares = average.rounds_shares;
    a.scaled = operation.scales();
    a.bytes = operation.bytes();
    a.source_rank = facts.input_of_others == Held::nothing ? operation.root : -1;
    a.destination_rank = facts.output_of_others == Held::nothing ? operation.root : -1;
    a.send_stride = facts.parted && facts.input_of_root == Held::all ? a.bytes : 0;
    a.receive_stride = facts.parted && facts.output_of_root == Held::all ? a.bytes : 0;
    a.reduces = facts.reduces;
}

bool multicast_serves(const Operation& operation, uint32_t capabilities, bool exactly) {
    if (operation.count == 0) return false;
    const auto type = weftDataType_t(operation.type);
    const auto op = weftRedOp_t(operation.op);
    switch (operation.collective) {
        case Collective::all_gather:
        case Collective::broadcast: return true;
        case Collective::all_reduce:
        case Collective::reduce_scatter:
            return multicast_reduces(type, op) && (needs(Body::multicast, type) & ~capabilities) == 0 &&
                   (!exactly || multicast_is_exact(type, op));
        default: return false;
    }
}

weftDataType_t element_of(const Operation& operation, Body body) {
    const bool reduces = facts_of(operation.collective).reduces;
    if (body == Body::multicast && reduces && is_bitwise(weftRedOp_t(operation.op))) return multicast_bits;
    if (reduces) return kernel_type(weftDataType_t(operation.type));
    if (body == Body::multicast) return multicast_word;
    return operation.bytes() % 8 == 0 ? weftInt64 : operation.bytes() % 4 == 0 ? weftInt32 : weftInt8;
}

const char* entry_point(Body body, weftDataType_t type, bool sums) {
    assert(is_datatype(type));
    return entry_points[size_t(body)][size_t(type)][size_t(sums)].name;
}

}  // namespace weft::internal::cuda
