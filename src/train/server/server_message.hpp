// server_message.hpp: the messages of a parameter server: a header, then the elements of the server's parameters.
#pragma once
#include <cstdint>
#include <string>

#include "src/base/result.hpp"
#include "src/train/server/server_state.hpp"

namespace weft::internal::train {

// Three requests of a worker, and three answers.
enum class MessageKind : uint32_t { push, pull, finish, done, slow, ended };

struct ServerHeader {
    MessageKind kind = MessageKind::done;
    int32_t rank = -1;           // the one that failed, or that is slow
    uint64_t step = 0;           // a request: the server's steps at the worker's last pull. An answer: those of now
    uint64_t slowest_clock = 0;  // of an answer
    char sentence[480] = "";     // of a failure
};
inline constexpr size_t server_header_bytes = 512;  // of cache lines
static_assert(sizeof(ServerHeader) <= server_header_bytes);

ServerHeader header_of(const std::byte* message);
ServerHeader header_for(const Result<ServerAnswer>& result);
// The bytes of a parameter's elements and their padding.
size_t bytes_in_message(const Tensor& tensor);
size_t element_bytes(const Tensor& tensor);
// The server of a parameter: the same one on all ranks and machines.
size_t server_of(const std::string& parameter, int servers);
// Settings that all ranks have, as text.
std::string described(const ServerRules& rules);

}  // namespace weft::internal::train
