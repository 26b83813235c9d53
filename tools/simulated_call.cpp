#include "tools/simulated_call.hpp"

namespace weft::internal::tools {

SimulatedCall simulated_call(const Algorithm& row, const HostKind& kind, const Layout& layout, uint64_t bytes,
                             uint64_t tile_bytes) {
    SimulatedCall call;
    const size_t parts = size_t(parts_of(row.collective, layout.ranks));
    call.bytes = (bytes + parts - 1) / parts;
    call.wanted_tile_bytes = tile_bytes;
    if (call.wanted_tile_bytes == 0 && row.tile_bytes) {
        LinkCosts costs;
        costs.net_us_per_byte = 1 / kind.net_bytes_per_us;
        costs.net_slot_bytes = kind.slot_bytes;
        call.wanted_tile_bytes = row.tile_bytes(layout, costs, parts * call.bytes);
    }
    // Devices of a host access each other's memory. Threads of different processes stage, and so do packets.
    const bool packets = row.collective == Collective::all_reduce && is_one_shot(row.schedule(layout, {}));
    if (kind.devices && !packets) call.mode = {std::vector<bool>(size_t(layout.ranks), true), true};
    return call;
}

}  // namespace weft::internal::tools
