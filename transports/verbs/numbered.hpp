// numbered.hpp: the connections of a link, by number.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace weft::internal::verbs {

// Null: none has this number.
template <class T>
T* at(const std::vector<std::shared_ptr<T>>& all, uint32_t index) {
    return index < all.size() ? all[index].get() : nullptr;
}

template <class T>
void put(std::vector<std::shared_ptr<T>>& all, uint32_t index, std::shared_ptr<T> value) {
    if (index >= all.size()) all.resize(size_t(index) + 1);
    all[index] = std::move(value);
}

}  // namespace weft::internal::verbs
