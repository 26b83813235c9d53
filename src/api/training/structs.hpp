// structs.hpp: reads and writes the structs of train.h, which another version of the caller may have made.
// They grow at their ends; `least` is the size in the first version. `initializer` is the macro that errors name.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "src/base/result.hpp"

namespace weft::internal {

constexpr size_t most_struct_size = 4096;  // a larger one was not initialised

inline Status not_initialised(const std::string& name, const char* initializer) {
    return fail(error::argument_config, "{} was not initialised: begin with {}", name, initializer);
}

// Entry `number` of an array, whose entries have one size. `initial` has the defaults of later fields.
template <class Struct>
Result<Struct> read_struct(const Struct* structs, size_t number, Struct initial, size_t least, const std::string& name,
                           const char* initializer) {
    const size_t size = structs[0].size;
    if (size < least || size > most_struct_size) return not_initialised(name, initializer);
    memcpy(&initial, reinterpret_cast<const std::byte*>(structs) + number * size, std::min(size, sizeof initial));
    if (initial.size != size) return not_initialised(name, initializer);
    return initial;
}

// Copies a config over `config`, which has the defaults. NULL leaves them.
template <class Config>
Status read_config_struct(const Config* given, size_t least, unsigned magic, const char* initializer, Config& config) {
    if (!given) return ok();
    if (given->magic != magic) return not_initialised("the config", initializer);
    auto read = read_struct(given, 0, config, least, "the config", initializer);
    if (!read) return read.take_status();
    config = *read;
    return ok();
}

template <class Struct>
Status write_struct(const char* function, const char* name, const Struct& made, size_t least, const char* initializer,
                    Struct* to) {
    if (!to || to->size < least || to->size > most_struct_size)
        return not_initialised(fmt::format("{}: {}", function, name), initializer);
    const size_t size = to->size;
    memcpy(to, &made, std::min(size, sizeof made));
    to->size = size;
    return ok();
}

}  // namespace weft::internal
