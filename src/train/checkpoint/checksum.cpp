#include "src/train/checkpoint/checksum.hpp"

#include <array>
#include <cstring>

namespace weft::internal::train {

namespace {

// tables[k][b]: the effect of byte b with k bytes behind it.
constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
    std::array<std::array<uint32_t, 256>, 8> tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
        tables[0][byte] = value;
    }
    for (size_t k = 1; k < 8; ++k)
        for (size_t byte = 0; byte < 256; ++byte)
            tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
    return tables;
}
constexpr auto tables = make_tables();

uint32_t step(uint32_t crc, uint8_t byte) { return (crc >> 8) ^ tables[0][(crc ^ byte) & 255]; }

uint32_t portable(uint32_t crc, const uint8_t* data, size_t bytes) {
    for (; bytes >= 8; data += 8, bytes -= 8) {
        crc ^= uint32_t(data[0]) | uint32_t(data[1]) << 8 | uint32_t(data[2]) << 16 | uint32_t(data[3]) << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^ tables[4][crc >> 24] ^
              tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; bytes > 0; ++data, --bytes) crc = step(crc, *data);
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) uint32_t with_instruction(uint32_t crc, const uint8_t* data, size_t bytes) {
    uint64_t wide = crc;
    for (; bytes >= 8; data += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = uint32_t(wide);
    for (; bytes > 0; ++data, --bytes) crc = step(crc, *data);
    return crc;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, size_t bytes) {
    const auto* const begin = static_cast<const uint8_t*>(data);
#ifdef __x86_64__
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return ~with_instruction(~0u, begin, bytes);
#endif
    return ~portable(~0u, begin, bytes);
}

uint32_t crc32c_portable(const void* data, size_t bytes) {
    return ~portable(~0u, static_cast<const uint8_t*>(data), bytes);
}

}  // namespace weft::internal::train
