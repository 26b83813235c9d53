// torch_store_test.cpp: an id through a TCPStore: one that works, none, and those that hang, die or are something else.
// tools/test --launchers runs the real one.
#include "src/bootstrap/torch_store.hpp"

#include <condition_variable>
#include <cstring>
#include <map>

#include "tests/bootstrap/fake_server.hpp"
#include "tests/bootstrap/ranks.hpp"

using namespace weft;
using namespace weft::test;

namespace {

template <class Number>
std::string raw(Number value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class Number>
std::optional<Number> read_number(const Line& line) {
    const auto bytes = line.bytes(sizeof(Number));
    if (!bytes) return {};
    Number value;
    memcpy(&value, bytes->data(), sizeof value);
    return value;
}
std::optional<std::string> read_text(const Line& line) {
    const auto size = read_number<uint64_t>(line);
    return size ? line.bytes(size_t(*size)) : std::nullopt;
}

// The part of PyTorch's TCPStore daemon that Weft speaks to.
class FakeStore {
  public:
    ~FakeStore() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
    }
    uint16_t port() const { return server_.port(); }
    size_t keys() {
        std::lock_guard lock(mutex_);
        return values_.size() + counts_.size();
    }

  private:
    void serve(const Line& line) {
        if (line.bytes(1) != std::string(1, '\0') || read_number<uint32_t>(line) != 0x3C85F7CEu) return;
        while (const auto query = line.bytes(1)) {
            const char what = (*query)[0];
            if (what == 6) read_number<uint64_t>(line);  // how many keys; Weft waits for one
            const auto key = read_text(line);
            if (!key) return;
            std::unique_lock lock(mutex_);
            switch (what) {
                case 1: values_[*key] = *read_text(line), changed_.notify_all(); break;
                case 3: line.send(raw(uint64_t(values_[*key].size())) + values_[*key]); break;
                case 4: {
                    const int64_t sum = counts_[*key] += *read_number<int64_t>(line);
                    line.send(raw(sum));
                    break;
                }
                case 6:
                    changed_.wait(lock, [&] { return over_ || values_.count(*key); });
                    if (over_) return;
                    line.send(std::string(1, '\0'));
                    break;
                case 8: line.send(raw(int64_t(values_.erase(*key) + counts_.erase(*key)))); break;
                default: return;
            }
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::map<std::string, int64_t> counts_;
    bool over_ = false;
    TcpServer server_{[this](const Line& line) { serve(line); }};
};

Status failure_of(const Handler& handler, int rank, int64_t deadline_ms = patient_ms) {
    const TcpServer server(handler);
    auto result = share_by_torch_store("127.0.0.1", server.port(), "job/0", sharing_of(rank, 2, deadline_ms));
    REQUIRE(!result);
    CHECK(contains(result.status().sentence(),
                   "PyTorch's store (MASTER_ADDR, MASTER_PORT) at 127.0.0.1:" + std::to_string(server.port())));
    return result.take_status();
}

}  // namespace

TEST_CASE("a TCPStore hands rank 0's id to all ranks, and keeps nothing of it", "[torch_store]") {
    FakeStore store;
    for (const int ranks : {1, 2, 9}) {
        check_all_have_it(share_on_threads(ranks, [&](const Sharing& sharing) {
            return share_by_torch_store("localhost", store.port(), "job/0", sharing);
        }));
        CHECK(store.keys() == 0);
    }
}

TEST_CASE("where nobody serves the store nobody carries the id", "[torch_store]") {
    const auto result = share_by_torch_store("127.0.0.1", free_port(), "job/0", sharing_of(1, 2));
    REQUIRE(result);
    CHECK(!result->text);
    CHECK(contains(result->reason, "nobody serves PyTorch's store at 127.0.0.1:"));
}

TEST_CASE("a rank whose rank 0 never comes is told so at the deadline", "[torch_store]") {
    FakeStore store;
    const auto result = share_by_torch_store("127.0.0.1", store.port(), "job/0", sharing_of(1, 2, 100));
    REQUIRE(!result);
    CHECK(result.status().code() == weftTimeout);
    CHECK(contains(result.status().sentence(), "waited 100 ms for rank 0's unique id: does rank 0 run"));
}

TEST_CASE("a store that dies, hangs or is another program is an error that names it", "[torch_store]") {
    CHECK(failure_of([](const Line&) {}, 1).code() == weftRemoteError);
    CHECK(failure_of([](const Line&) {}, 0).code() == weftRemoteError);
    CHECK(failure_of([](const Line& line) { line.bytes(30); }, 0).code() == weftRemoteError);
    CHECK(failure_of([](const Line& line) { line.hang(); }, 0, 100).code() == weftTimeout);
    // A web server that did not like our bytes.
    const Status web =
        failure_of([](const Line& line) { line.bytes(5), line.send("HTTP/1.1 400 Bad Request\r\n"), line.hang(); }, 1);
    CHECK(contains(web.sentence(), "sent `H` instead of rank 0's unique id"));
    // A value of a size that cannot be, and one that breaks off.
    const auto after_wait = [](const std::string& answer) {
        return [answer](const Line& line) {
            line.bytes(5);
            line.bytes(1 + 8), read_text(line);
            line.send(std::string(1, '\0'));
            line.bytes(1), read_text(line);
            line.send(answer);
        };
    };
    CHECK(contains(failure_of(after_wait(raw(uint64_t(1) << 60)), 1).sentence(), "instead of rank 0's unique id"));
    CHECK(contains(failure_of(after_wait(raw(uint64_t(256)) + "abc"), 1).sentence(), "closed the connection"));
    CHECK(contains(failure_of(after_wait(raw(uint32_t(256))), 1).sentence(), "closed the connection"));
}
