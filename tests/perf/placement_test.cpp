// placement_test.cpp: buffers lie where NCCL puts them, and expected results follow from the senders.
#include "perf/placement.hpp"

#include "tests/catch.hpp"

using namespace perf;

namespace {

Collective row(bool parted, bool reduces, Holds sends, Holds receives) {
    return {.served_by = "a fake",
            .program = "a_perf",
            .bench_name = "a",
            .parted = parted,
            .rooted = false,
            .reduces = reduces,
            .sends = sends,
            .receives = receives,
            .bus_factor = nullptr,
            .run = nullptr};
}

const Collective all_reduce = row(false, true, Holds::all_parts, Holds::all_parts),
                 all_gather = row(true, false, Holds::own_part, Holds::all_parts),
                 reduce_scatter = row(true, true, Holds::all_parts, Holds::own_part),
                 broadcast = row(false, false, Holds::all_parts_on_root, Holds::all_parts),
                 reduce = row(false, true, Holds::all_parts, Holds::all_parts_on_root),
                 alltoall = row(true, false, Holds::all_parts, Holds::all_parts),
                 gather = row(true, false, Holds::own_part, Holds::all_parts_on_root),
                 scatter = row(true, false, Holds::all_parts_on_root, Holds::own_part);

// Rank 2 of 4, or the root among them.
constexpr Seat other{2, 4, 1}, root{1, 4, 1};
constexpr uint64_t seed = 7;

Pattern pattern(int part) { return {*find_element("float"), *find_reduction("sum"), 4, seed + uint64_t(part)}; }

Data data(const Collective& collective, const Seat& seat) {
    return {collective, *find_element("float"), *find_reduction("sum"), seat, seed};
}

Data::Contents after(const Collective& collective, const Seat& seat, bool in_place, Side side) {
    return data(collective, seat).after(placement_of(collective, seat, in_place), side);
}

}  // namespace

TEST_CASE("out of place each buffer starts its own memory") {
    for (const Collective& collective : {all_reduce, all_gather, reduce_scatter, alltoall, gather, scatter})
        for (const Seat& seat : {other, root}) {
            const Placement placement = placement_of(collective, seat, false);
            CHECK(placement.send.side == sending);
            CHECK(placement.receive.side == receiving);
            CHECK(placement.send.first == 0);
            CHECK(placement.receive.first == 0);
        }
}

TEST_CASE("in place a rank's own part lies in the whole, where the whole has it") {
    CHECK(placement_of(all_gather, other, true).send == Extent{receiving, 2, 1});
    CHECK(placement_of(all_gather, other, true).receive == Extent{receiving, 0, 4});
    CHECK(placement_of(reduce_scatter, other, true).send == Extent{receiving, 0, 4});
    CHECK(placement_of(reduce_scatter, other, true).receive == Extent{receiving, 2, 1});
    CHECK(placement_of(gather, root, true).send == Extent{receiving, 1, 1});
    CHECK(placement_of(gather, root, true).receive == Extent{receiving, 0, 4});
    CHECK(placement_of(scatter, root, true).send == Extent{receiving, 0, 4});
    CHECK(placement_of(scatter, root, true).receive == Extent{receiving, 1, 1});
    for (const Collective& collective : {all_reduce, broadcast, reduce}) {
        CHECK(placement_of(collective, root, true).send == Extent{receiving, 0, 1});
        CHECK(placement_of(collective, root, true).receive == Extent{receiving, 0, 1});
    }
}

TEST_CASE("ranks but the root do not use a buffer that is the root's") {
    for (bool in_place : {false, true}) {
        CHECK(placement_of(broadcast, other, in_place).send.parts == 0);
        CHECK(placement_of(scatter, other, in_place).send.parts == 0);
        CHECK(placement_of(reduce, other, in_place).receive.parts == 0);
        CHECK(placement_of(gather, other, in_place).receive.parts == 0);
    }
    CHECK(after(gather, other, false, receiving) == Data::Contents(4));
    CHECK(after(reduce, other, false, receiving) == Data::Contents(1));
}

TEST_CASE("results agree with the definition of the collective") {
    using Contents = Data::Contents;
    const auto moved = [](int rank, int part) { return pattern(part).bits(rank); };
    const Contents gathered{moved(0, 0), moved(1, 1), moved(2, 2), moved(3, 3)};
    CHECK(after(all_reduce, other, false, receiving) == Contents{pattern(0).reduced()});
    CHECK(after(reduce, root, false, receiving) == Contents{pattern(0).reduced()});
    CHECK(after(reduce_scatter, other, false, receiving) == Contents{pattern(2).reduced(), {}, {}, {}});
    CHECK(after(all_gather, other, false, receiving) == gathered);
    CHECK(after(gather, root, false, receiving) == gathered);
    CHECK(after(broadcast, other, false, receiving) == Contents{moved(1, 0)});
    CHECK(after(scatter, other, false, receiving) == Contents{moved(1, 2), {}, {}, {}});
    CHECK(after(alltoall, other, false, receiving) == Contents{moved(0, 2), moved(1, 2), moved(2, 2), moved(3, 2)});
}

TEST_CASE("send buffers stay unchanged, except for calls in place") {
    using Contents = Data::Contents;
    const Contents sent{pattern(0).input(2), pattern(1).input(2), pattern(2).input(2), pattern(3).input(2)};
    const Placement apart = placement_of(reduce_scatter, other, false);
    CHECK(data(reduce_scatter, other).before(apart, sending) == sent);
    CHECK(data(reduce_scatter, other).after(apart, sending) == sent);
    Contents replaced = sent;
    replaced[2] = pattern(2).reduced();
    CHECK(after(reduce_scatter, other, true, receiving) == replaced);
    // A rank that only sends keeps its part.
    CHECK(after(gather, other, true, receiving) == Contents{{}, {}, pattern(2).bits(2), {}});
}
