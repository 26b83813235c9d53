// notes.hpp: collects notes about anomalies of a machine or its file: sentences for people, with a limit on their
// number.
#pragma once
#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

namespace weft::internal::topology {

constexpr size_t notes_most = 1'000;

template <class... Arguments>
void say(std::vector<std::string>& notes, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    if (notes.size() < notes_most) notes.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace weft::internal::topology
