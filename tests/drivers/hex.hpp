// hex.hpp: handles as text, for another process's arguments.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <string>

inline std::string to_hex(const void* data, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) {
        const auto byte = static_cast<const unsigned char*>(data)[i];
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

inline void from_hex(const std::string& text, void* data, size_t bytes) {
    for (size_t i = 0; i < bytes && 2 * i + 1 < text.size(); ++i)
        static_cast<unsigned char*>(data)[i] =
            static_cast<unsigned char>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
}
