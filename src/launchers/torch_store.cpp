#include "src/launchers/torch_store.hpp"

#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "src/launchers/server_connection.hpp"
#include "src/net/secret.hpp"
#include "src/rendezvous/root_hint.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

namespace {

// torch/csrc/distributed/c10d/TCPStoreBackend.hpp: the first byte is the kind of request. Numbers are in the host's byte
// order, which is little-endian wherever PyTorch runs.
enum class Query : uint8_t { validate = 0, set = 1, get = 3, check = 5, wait = 6, delete_key = 8 };
constexpr uint32_t validation = 0x3C85F7CE;
constexpr size_t value_most = 64 * 1024;
constexpr char stop_waiting = 0, key_exists = 0, key_missing = 1;
// Requests that are sent before their answers are read: both directions fit into the socket's buffers.
constexpr size_t requests_at_once = 64;
constexpr int64_t pause_first_ms = 1, pause_most_ms = 20;

// The key of a rank holds one of these words and the nonce of the rank's attempt.
constexpr std::string_view asks = "asks ", has = "has ";

template <class Number>
std::string number_bytes(Number value) {
    static_assert(std::endian::native == std::endian::little);
    std::string bytes(sizeof value, '\0');
    memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}
std::string query(Query what) { return std::string(1, char(what)); }
std::string text(const std::string& value) { return number_bytes(uint64_t(value.size())) + value; }

Status set(ServerConnection& store, const std::string& key, const std::string& value) {
    return store.send(query(Query::set) + text(key) + text(value));
}

// Blocks until the key exists.
Status await_key(ServerConnection& store, const std::string& key, const std::string& what) {
    WEFT_TRY(store.send(query(Query::wait) + number_bytes(uint64_t(1)) + text(key)));
    auto answer = store.receive(1, what);
    if (!answer) return answer.take_status();
    return (*answer)[0] == stop_waiting ? ok() : store.unexpected_answer(what, *answer);
}

Result<std::string> receive_value(ServerConnection& store, const std::string& what) {
    auto head = store.receive(sizeof(uint64_t), what);
    if (!head) return head.take_status();
    uint64_t bytes = 0;
    memcpy(&bytes, head->data(), sizeof bytes);
    if (bytes > value_most) return store.unexpected_answer(what, *head);
    return store.receive(size_t(bytes), what);
}

Result<std::string> read(ServerConnection& store, const std::string& key, const std::string& what) {
    WEFT_TRY(store.send(query(Query::get) + text(key)));
    return receive_value(store, what);
}

// The values of these keys; empty for missing keys. Checks first, because the store closes the connection of a client
// that gets a missing key.
Status read_all(ServerConnection& store, const std::vector<std::string>& keys, std::vector<std::string>& values,
                const std::string& what) {
    values.assign(keys.size(), "");
    for (size_t first = 0; first < keys.size(); first += requests_at_once) {
        const size_t end = std::min(keys.size(), first + requests_at_once);
        std::string requests;
        for (size_t i = first; i < end; ++i)
            requests += query(Query::check) + number_bytes(uint64_t(1)) + text(keys[i]);
        WEFT_TRY(store.send(requests));
        auto there = store.receive(end - first, what);
        if (!there) return there.take_status();
        requests.clear();
        for (size_t i = first; i < end; ++i) {
            const char state = (*there)[i - first];
            if (state != key_exists && state != key_missing) return store.unexpected_answer(what, *there);
            if (state == key_exists) requests += query(Query::get) + text(keys[i]);
        }
        WEFT_TRY(store.send(requests));
        for (size_t i = first; i < end; ++i) {
            if ((*there)[i - first] != key_exists) continue;
            auto value = receive_value(store, what);
            if (!value) return value.take_status();
            values[i] = std::move(*value);
        }
    }
    return ok();
}

Status forget(ServerConnection& store, const std::vector<std::string>& keys) {
    for (size_t first = 0; first < keys.size(); first += requests_at_once) {
        const size_t end = std::min(keys.size(), first + requests_at_once);
        std::string requests;
        for (size_t i = first; i < end; ++i) requests += query(Query::delete_key) + text(keys[i]);
        WEFT_TRY(store.send(requests));
        auto answers = store.receive((end - first) * sizeof(int64_t), "the keys' deletion");
        if (!answers) return answers.take_status();
    }
    return ok();
}

std::string rank_key(const std::string& job, int rank) { return fmt::format("{}/rank {}", job, rank); }
std::string answer_key(const std::string& job, const std::string& nonce) { return job + "/to " + nonce; }

std::string make_nonce() {
    unsigned char bytes[16];
    net::random_bytes(bytes, sizeof bytes);
    std::string nonce;
    for (const unsigned char byte : bytes) nonce += fmt::format("{:02x}", byte);
    return nonce;
}

// For every rank but rank 0. Rank 0 writes the answer under a key with this attempt's nonce, so that the text cannot be
// of an earlier attempt.
Result<ExchangedText> ask(ServerConnection& store, const std::string& job, const IdExchange& exchange) {
    const std::string what = "rank 0's unique id: does rank 0 run, and call Weft?";
    const std::string nonce = make_nonce(), own = rank_key(job, exchange.rank), answer = answer_key(job, nonce);
    std::vector<std::string> former;
    WEFT_TRY(read_all(store, {own}, former, what));
    // An earlier attempt may have ended before it confirmed its answer. No other rank deletes that answer.
    if (const size_t blank = former[0].find(' '); blank != std::string::npos)
        WEFT_TRY(forget(store, {answer_key(job, former[0].substr(blank + 1))}));
    WEFT_TRY(set(store, own, std::string(asks) + nonce));
    WEFT_TRY(await_key(store, answer, what));
    auto value = read(store, answer, what);
    if (!value) return value.take_status();
    WEFT_TRY(set(store, own, std::string(has) + nonce));
    return ExchangedText{*value, {}};
}

// Rank 0: answers every rank. If the nonce of a rank's key changes, the old one was of an earlier attempt, and rank 0
// answers again. Ends when each rank has its answer, and deletes its own keys and the ranks'.
Result<ExchangedText> answer_all(ServerConnection& store, const std::string& job, const IdExchange& exchange) {
    std::map<int, std::string> answered;  // the last nonce of each rank that was answered
    std::vector<std::string> written, keys, values;
    std::vector<int> missing;
    for (int rank = 1; rank < exchange.ranks; ++rank) {
        missing.push_back(rank);
        written.push_back(rank_key(job, rank));
    }
    for (int64_t pause_ms = pause_first_ms; !missing.empty();) {
        keys.clear();
        for (const int rank : missing) keys.push_back(rank_key(job, rank));
        WEFT_TRY(read_all(store, keys, values, "what the ranks ask for"));
        bool changed = false;
        std::vector<int> still_missing;
        for (size_t i = 0; i < missing.size(); ++i) {
            const int rank = missing[i];
            std::string& nonce = answered[rank];
            if (!nonce.empty() && values[i] == std::string(has) + nonce) {
                changed = true;
                continue;
            }
            still_missing.push_back(rank);
            if (!values[i].starts_with(asks) || values[i].substr(asks.size()) == nonce) continue;
            changed = true;
            nonce = values[i].substr(asks.size());
            written.push_back(answer_key(job, nonce));
            WEFT_TRY(set(store, written.back(), exchange.text));
        }
        missing = std::move(still_missing);
        if (missing.empty()) break;
        pause_ms = changed ? pause_first_ms : std::min(2 * pause_ms, pause_most_ms);
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        if (exchange.deadline.passed())
            return fail(error::launcher_timeout,
                        "{}: waited {} ms for {} to ask there for rank 0's unique id: do they run, and call Weft?",
                        store.server(), exchange.deadline.all_ms(), ranks_text(missing));
    }
    WEFT_TRY(forget(store, written));
    return ExchangedText{exchange.text, {}};
}

}  // namespace

Result<ExchangedText> exchange_by_torch_store(const std::string& host, uint16_t port, const std::string& key,
                                              const IdExchange& exchange) {
    auto connection =
        ServerConnection::connect("PyTorch's store (MASTER_ADDR, MASTER_PORT)", host, port, exchange.deadline);
    if (!connection) return connection.take_status();
    if (!*connection) return no_id_transport(fmt::format("no process serves PyTorch's store at {}:{}", host, port));
    ServerConnection& store = **connection;
    WEFT_TRY(store.send(query(Query::validate) + number_bytes(validation)));
    const std::string job = "/weft/" + key;
    auto shared = exchange.rank == 0 ? answer_all(store, job, exchange) : ask(store, job, exchange);
    if (shared || shared.status().code() != weftTimeout) return shared;
    return fail(shared.status(), "{}{}", shared.status().sentence(),
                loopback_hint("MASTER_ADDR", host, {store.peer()}));
}

}  // namespace weft::internal
