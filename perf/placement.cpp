// placement.cpp: derives buffers and their contents from a collective's row.
#include "placement.hpp"

namespace perf {
namespace {

Extent extent_of(Side side, Holds holds, int parts, const Seat& seat) {
    switch (holds) {
        case Holds::own_part: return {side, 0, 1};
        case Holds::all_parts: return {side, 0, parts};
        case Holds::all_parts_on_root: break;
    }
    return {side, 0, seat.rank == seat.root ? parts : 0};
}

}  // namespace

int parts_of(const Collective& collective, int ranks) { return collective.parted ? ranks : 1; }

Placement placement_of(const Collective& collective, const Seat& seat, bool in_place) {
    const int parts = parts_of(collective, seat.ranks);
    Placement placement{extent_of(sending, collective.sends, parts, seat),
                        extent_of(receiving, collective.receives, parts, seat)};
    if (!in_place) return placement;
    placement.send.side = receiving;
    if (collective.sends == Holds::own_part) placement.send.first = seat.rank;
    if (collective.receives == Holds::own_part) placement.receive.first = seat.rank;
    return placement;
}

Data::Data(const Collective& collective, const Element& element, const Reduction& reduction, const Seat& seat,
           uint64_t seed)
    : collective_(collective), element_(element), reduction_(reduction), seat_(seat), seed_(seed) {}

Pattern Data::pattern(int part) const { return {element_, reduction_, seat_.ranks, seed_ + uint64_t(part)}; }

Period Data::input(int rank, int part) const {
    return collective_.reduces ? pattern(part).input(rank) : pattern(part).bits(rank);
}

Period Data::received(int part) const {
    if (collective_.reduces) return pattern(part).reduced();
    if (collective_.partner) {
        const int from = collective_.partner(seat_);
        return from < 0 ? Period() : input(from, part);
    }
    switch (collective_.sends) {
        case Holds::own_part: return input(part, part);
        case Holds::all_parts: return input(part, seat_.rank);
        case Holds::all_parts_on_root: break;
    }
    return input(seat_.root, part);
}

Data::Contents Data::before(const Placement& placement, Side side) const {
    Contents contents(size_t(parts_of(collective_, seat_.ranks)));
    const Extent& send = placement.send;
    const bool own = collective_.sends == Holds::own_part;
    for (int i = 0; side == send.side && i < send.parts; ++i)
        contents[size_t(send.first + i)] = input(seat_.rank, own ? seat_.rank : i);
    return contents;
}

Data::Contents Data::after(const Placement& placement, Side side) const {
    Contents contents = before(placement, side);
    const Extent& receive = placement.receive;
    const bool own = collective_.receives == Holds::own_part;
    for (int i = 0; side == receive.side && i < receive.parts; ++i)
        contents[size_t(receive.first + i)] = received(own ? seat_.rank : i);
    return contents;
}

}  // namespace perf
