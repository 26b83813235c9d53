#include "src/train/server/server_message.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/datatype.hpp"

namespace weft::internal::train {

namespace {
constexpr size_t key_alignment = 64;  // a cache line
}

ServerHeader header_of(const std::byte* message) {
    ServerHeader header;
    memcpy(&header, message, sizeof header);
    header.sentence[sizeof header.sentence - 1] = 0;
    return header;
}

ServerHeader header_for(const Result<ServerAnswer>& result) {
    ServerHeader header;
    if (result) {
        header.step = result->steps;
        header.slowest_clock = result->slowest_clock;
        return header;
    }
    const Status& status = result.status();
    header.kind = status.id() == error::train_server_slow ? MessageKind::slow : MessageKind::ended;
    header.rank = status.facts().rank;
    const size_t bytes = std::min(status.sentence().size(), sizeof header.sentence - 1);
    memcpy(header.sentence, status.sentence().data(), bytes);
    return header;
}

size_t element_bytes(const Tensor& tensor) { return tensor.facts.count * size_of(tensor.facts.type); }

size_t bytes_in_message(const Tensor& tensor) {
    return (element_bytes(tensor) + key_alignment - 1) / key_alignment * key_alignment;
}

size_t server_of(const std::string& parameter, int servers) {
    // FNV-1a.
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char letter : parameter) hash = (hash ^ uint8_t(letter)) * 0x100000001b3u;
    return hash % size_t(servers);
}

std::string described(const ServerRules& rules) {
    return fmt::format("the settings servers {}, staleness {}, accepted {}, learningRate {}, timeoutMs {}, update {}\n",
                       rules.servers, rules.staleness, rules.accepted, rules.learning_rate, rules.timeout_ms,
                       rules.update ? "own" : "SGD");
}

}  // namespace weft::internal::train
