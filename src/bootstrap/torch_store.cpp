#include "src/bootstrap/torch_store.hpp"

#include <bit>
#include <cstring>

#include "src/bootstrap/dialogue.hpp"

namespace weft {

namespace {

// torch/csrc/distributed/c10d/TCPStoreBackend.hpp: one byte says what is asked; numbers are in the host's order, which
// is little-endian wherever PyTorch runs.
enum class Query : uint8_t { validate = 0, set = 1, get = 3, add = 4, wait = 6, delete_key = 8 };
constexpr uint32_t validation = 0x3C85F7CE;
constexpr size_t value_most = 64 * 1024;
constexpr char stop_waiting = 0;

template <class Number>
std::string number(Number value) {
    static_assert(std::endian::native == std::endian::little);
    std::string bytes(sizeof value, '\0');
    memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}
std::string query(Query what) { return std::string(1, char(what)); }
std::string text(const std::string& value) { return number(uint64_t(value.size())) + value; }

// Blocks until the key is there.
Status await(Dialogue& store, const std::string& key, const std::string& what) {
    WEFT_TRY(store.send(query(Query::wait) + number(uint64_t(1)) + text(key)));
    auto answer = store.receive(1, what);
    if (!answer) return answer.take_status();
    return (*answer)[0] == stop_waiting ? ok() : store.surprised(what, *answer);
}

Result<std::string> read(Dialogue& store, const std::string& key, const std::string& what) {
    WEFT_TRY(store.send(query(Query::get) + text(key)));
    auto head = store.receive(sizeof(uint64_t), what);
    if (!head) return head.take_status();
    uint64_t bytes = 0;
    memcpy(&bytes, head->data(), sizeof bytes);
    if (bytes > value_most) return store.surprised(what, *head);
    return store.receive(size_t(bytes), what);
}

Result<int64_t> count(Dialogue& store, const std::string& key) {
    WEFT_TRY(store.send(query(Query::add) + text(key) + number(int64_t(1))));
    auto answer = store.receive(sizeof(int64_t), "how many ranks have the id");
    if (!answer) return answer.take_status();
    int64_t ranks = 0;
    memcpy(&ranks, answer->data(), sizeof ranks);
    return ranks;
}

// The next attempt of the job must not find this one's id, nor a stranger later.
Status forget(Dialogue& store, const std::string& key) {
    WEFT_TRY(store.send(query(Query::delete_key) + text(key)));
    auto answer = store.receive(sizeof(int64_t), "the key's deletion");
    return answer ? ok() : answer.take_status();
}

}  // namespace

Result<SharedText> share_by_torch_store(const std::string& host, uint16_t port, const std::string& key,
                                        const Sharing& sharing) {
    auto connection = Dialogue::connect("PyTorch's store (MASTER_ADDR, MASTER_PORT)", host, port, sharing.deadline);
    if (!connection) return connection.take_status();
    if (!*connection) return nobody_carries(fmt::format("nobody serves PyTorch's store at {}:{}", host, port));
    Dialogue& store = **connection;
    const std::string id_key = "/weft/" + key, readers_key = id_key + "/readers";
    const std::string what = "rank 0's unique id: does rank 0 run, and call Weft?";
    WEFT_TRY(store.send(query(Query::validate) + number(validation)));
    if (sharing.rank == 0) WEFT_TRY(store.send(query(Query::set) + text(id_key) + text(sharing.text)));
    WEFT_TRY(await(store, id_key, what));
    auto value = read(store, id_key, what);
    if (!value) return value.take_status();
    auto readers = count(store, readers_key);
    if (!readers) return readers.take_status();
    if (*readers == sharing.ranks) {
        WEFT_TRY(forget(store, id_key));
        WEFT_TRY(forget(store, readers_key));
    }
    return SharedText{*value, {}};
}

}  // namespace weft
