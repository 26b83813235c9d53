// msccl_xml.hpp: an MSCCL file as plain values in range, without their meaning. Attributes without a use in Weft
// (proto, nthreads, hasdep, redop) are ignored.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/instruction.hpp"
#include "src/xml/xml.hpp"

namespace weft::internal::msccl {

template <class... Arguments>
Status fail_at(const xml::Mark& mark, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return xml::fail_at(error::schedule_msccl, mark, format, std::forward<Arguments>(arguments)...);
}
using xml::Mark;

// Places `offset` and following of the input, output or scratch; none if the step does not use it.
struct Operand {
    Buffer buffer = Buffer::none;
    int32_t offset = 0;
};

struct Step {
    Mark mark;
    Opcode opcode = Opcode::nop;
    Operand source, target;
    int32_t count = 1;
    int32_t after_block = -1;  // index of the block, -1: none
    int32_t after_step = -1;
};

struct ThreadBlock {
    Mark mark;
    int32_t id = 0;
    int32_t send = -1, receive = -1;  // gpus, -1: none
    int32_t channel = 0;
    std::vector<Step> steps;
};

struct XmlGpu {
    Mark mark;
    int32_t id = -1;
    int32_t scratch_chunks = 0;
    std::vector<ThreadBlock> blocks;
};

struct File {
    Mark mark;
    std::string name;
    std::string collective;  // as written; empty: not stated
    int32_t ranks = 0;
    int32_t chunks = 0;  // of the whole
    int32_t root = -1;   // -1: not stated
    bool in_place = false;
    uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
    std::vector<XmlGpu> gpus;  // by rank
};

Result<File> parse(std::string_view xml);

}  // namespace weft::internal::msccl
