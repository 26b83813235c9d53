// multicast_test.cpp: the kernels of the switch, run by threads: on windows behind the switch without staging memory, and
// staged where the ranks offer different places, or some offer none.
#include <cstdlib>
#include <new>

#include "src/gpu/kernels/multicast/multicast_copies.hpp"
#include "tests/executor/cuda/virtual_ranks.hpp"

namespace weft::internal::test {
namespace {

using cuda::Body;
using cuda::multicast_granule;
using cuda::MulticastCopies;

// A multicast mapping of at most 2 MiB, whose copies begin at these addresses.
class Mapping {
  public:
    explicit Mapping(const std::vector<const std::byte*>& copies)
        : memory_(static_cast<std::byte*>(std::aligned_alloc(multicast_granule, multicast_granule)), std::free) {
        auto& directory = *new (memory_.get()) MulticastCopies{int32_t(copies.size()), {}};
        for (size_t rank = 0; rank < copies.size(); ++rank)
            directory.at[rank] = const_cast<std::byte*>(copies[rank]) - offset;
    }
    std::byte* address() const { return memory_.get() + offset; }

  private:
    static constexpr size_t offset = 4096;  // behind the directory
    std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

enum class Offers { alike, unlike, of_some, none };

std::vector<Bytes> run_switched(VirtualRanks& ranks, const Call& call, int blocks, Offers offers) {
    const auto parts = ranks.prepare(call, {Body::multicast, blocks, true, -1});
    std::vector<const std::byte*> sent, received, staged;
    for (const auto& part : parts) {
        sent.push_back(part->arguments.send);
        received.push_back(part->arguments.receive);
        staged.push_back(part->arguments.outputs[part->arguments.rank]);
    }
    const Mapping send(sent), receive(received), staging(staged);
    for (const auto& part : parts) {
        cuda::KernelArguments& a = part->arguments;
        const bool gives = offers != Offers::none && (offers != Offers::of_some || a.rank != 0);
        const uintptr_t token = offers == Offers::unlike && a.rank == ranks.ranks() - 1 ? 2 : 1;
        for (int peer = 0; gives && peer < ranks.ranks(); ++peer) {
            a.exported_send[peer] = reinterpret_cast<const std::byte*>(token);
            a.exported_receive[peer] = reinterpret_cast<std::byte*>(token);
        }
        // Memory that a kernel need not access is not there.
        const bool in_place = offers == Offers::alike;
        a.switched_send = in_place ? send.address() : nullptr;
        a.switched_receive = in_place ? receive.address() : nullptr;
        a.scratch = in_place ? nullptr : staging.address();
        for (std::byte*& output : a.outputs)
            if (in_place) output = nullptr;
    }
    for (const auto& part : parts) part->start();
    for (const auto& part : parts) part->join();
    std::vector<Bytes> results;
    for (const auto& part : parts) {
        if (!part->intact()) FAIL_CHECK("rank " << part->arguments.rank << " wrote beside its buffer");
        results.push_back(part->result());
    }
    CHECK(ranks.failures() == "");
    return results;
}

Call switched_call(Collective collective, weftDataType_t type, int n, size_t count, std::mt19937& random) {
    Call call;
    call.algorithm = registry::find_algorithm("one_shot", collective);
    call.root = facts_of(collective).rooted ? int(random() % unsigned(n)) : -1;
    call.type = type;
    call.tile_bytes = 64 * (1 + random() % 40);
    for (int rank = 0; rank < n; ++rank) {
        const size_t held = count * size_t(parts_held(call.input_held(rank), parts_of(collective, n)));
        call.inputs.push_back(reference::mild(type, held, random));
        call.in_place.push_back(random() % 2 == 0);
    }
    return call;
}

}  // namespace

TEST_CASE("collectives on windows behind the switch need no staging memory", "[cuda][multicast]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    for (const int n : {1, 2, 3, 8}) {
        VirtualRanks ranks(n);
        const auto check = [&](const Call& call, Offers offers) {
            INFO(call.text() << ", offers " << int(offers));
            Call whole = call;
            whole.tile_bytes = std::max<size_t>(64, call.bytes());
            const auto got = run_switched(ranks, call, 1 + int(random() % 3), offers);
            if (const auto where = difference(whole, got, expected(whole))) FAIL_CHECK(*where);
        };
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast})
            for (const weftDataType_t type : {weftFloat32, weftFloat16, weftBfloat16, weftFloat64, weftInt8})
                for (const size_t bytes : {size_t(16), size_t(16) * (1 + random() % 40), size_t(20'000)})
                    for (const Offers offers : {Offers::alike, Offers::unlike, Offers::of_some, Offers::none}) {
                        if (type == weftInt8 && facts_of(collective).reduces) continue;
                        // One rank differs from no other.
                        if (n == 1 && offers != Offers::alike) continue;
                        if (small() && random() % (sanitized ? 9 : 3) != 0) continue;
                        check(switched_call(collective, type, n, bytes / size_of(type), random), offers);
                    }
        // Every reduction of every type that the switch has, in place and staged.
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter})
            for (int type = 0; type < weftNumTypes; ++type)
                for (int op = 0; op < weftNumOps; ++op)
                    for (const Offers offers : {Offers::alike, Offers::none}) {
                        if (!cuda::multicast_reduces(weftDataType_t(type), weftRedOp_t(op))) continue;
                        if (small() && sanitized && random() % 3 != 0) continue;
                        const size_t bytes = offers == Offers::none ? 1 + random() % 3000 : 16 * (1 + random() % 200),
                                     count = std::max<size_t>(1, bytes / size_of(weftDataType_t(type)));
                        Call call = switched_call(collective, weftDataType_t(type), n, count, random);
                        call.op = weftRedOp_t(op);
                        check(call, offers);
                    }
    }
}

}  // namespace weft::internal::test
