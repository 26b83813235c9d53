// result_check.cpp: fills the buffers, makes the call, and counts the elements that differ from the expected ones.
#include "result_check.hpp"

#include <algorithm>

namespace perf {

int64_t ResultCheck::check(const Case& measured, const Setting& setting, bool in_place, const Buffers& buffers,
                           const std::string& algorithm) {
    const size_t parts = size_t(parts_of(collective_, rank_.count()));
    const size_t part_bytes = measured.call.count * setting.element.bytes;
    const Seat seat{rank_.index(), rank_.count(), setting.root};
    const Placement placement = placement_of(collective_, seat, in_place);
    const Data data(collective_, setting.element, setting.reduction, seat, seed_);
    seed_ += parts;
    // Results must overwrite this data. Bytes behind the buffers and in unused buffers must keep it.
    const Period untouched(4096, std::byte(0xa5));
    const auto period = [&](const Data::Contents& contents, size_t part) -> const Period& {
        return contents[part].empty() ? untouched : contents[part];
    };
    const std::vector<Side> sides = in_place ? std::vector{receiving} : std::vector{sending, receiving};
    for (Side side : sides) {
        const Data::Contents before = data.before(placement, side);
        for (size_t part = 0; part < parts; ++part)
            buffers.write(side, part * part_bytes, part_bytes, period(before, part));
        buffers.write(side, parts * part_bytes, guard_bytes, untouched);
    }
    rank_.barrier();
    if (!algorithm.empty()) {
        weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
        config.algo = algorithm.c_str();
        rank_.expect(weftCommSetCallConfig(rank_.comm(), &config), "weftCommSetCallConfig");
    }
    call_once(rank_, measured);
    // The other exchanges of the check use the selector's choice.
    if (!algorithm.empty()) rank_.expect(weftCommSetCallConfig(rank_.comm(), nullptr), "weftCommSetCallConfig");
    size_t wrong = 0;
    for (Side side : sides) {
        const Data::Contents before = data.before(placement, side), after = data.after(placement, side);
        for (size_t part = 0; part < parts; ++part) {
            // Behind the elements of an uneven part, the buffer must be unchanged.
            const size_t written = side == receiving && collective_.share
                                       ? setting.element.bytes *
                                             collective_.share(measured.call.count, int(part), rank_.index())
                                       : part_bytes,
                         first = part * part_bytes, element = setting.element.bytes;
            wrong += buffers.wrong(side, first, written, period(after, part), element);
            wrong += buffers.wrong(side, first + written, part_bytes - written, period(before, part), 1);
        }
        wrong += buffers.wrong(side, parts * part_bytes, guard_bytes, untouched, 1);
    }
    own_wrong_ += int64_t(wrong);
    return std::max(int64_t(rank_.combine(double(wrong), weftSum)), int64_t(wrong));
}

}  // namespace perf
