#include "src/drivers/verbs/port_text.hpp"

#include <fmt/core.h>

#include <initializer_list>
#include <utility>

namespace weft::internal::verbs {

int lanes_mbps(const abi::PortAttributes& port) {
    const auto pick = [](unsigned mask, std::initializer_list<std::pair<unsigned, int>> rows) {
        for (const auto& [bit, value] : rows)
            if (mask == bit) return value;
        return -1;
    };
    const int lanes = pick(port.width, {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}});
    const int lane_mbps = pick(
        port.speed,
        {{1, 2'500}, {2, 5'000}, {4, 10'000}, {8, 10'000}, {16, 14'000}, {32, 25'000}, {64, 50'000}, {128, 100'000}});
    return lanes > 0 && lane_mbps > 0 ? lanes * lane_mbps : -1;
}

std::string port_state_text(int state) {
    constexpr const char* texts[] = {"", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
    return state > 0 && state <= 5 ? texts[state] : fmt::format("state {}", state);
}

bool is_active(int state) { return state == 4 || state == 5; }

}  // namespace weft::internal::verbs
