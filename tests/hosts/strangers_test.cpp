// strangers_test.cpp: many processes that are no ranks connect to the root and to ranks.
#include <sys/socket.h>

#include "src/base/fd.hpp"
#include "src/rendezvous/unique_id.hpp"
#include "tests/hosts/network.hpp"

using namespace weft::internal::test;
using weft::internal::Fd;
using weft::internal::UniqueId;

namespace {

// Some stay connected and say nothing, some make noise, most hang up at once as a port scan does.
class Strangers {
  public:
    void knock(const weft::internal::net::Address& listener) {
        const int number = count_++;
        Fd stranger(socket(listener.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (!stranger || connect(stranger.number(), listener.raw(), listener.raw_bytes()) != 0) return;
        if (number % 3 == 0) (void)!send(stranger.number(), "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
        if (number % 25 == 0 && silent_.size() < 400) silent_.push_back(std::move(stranger));
    }

  private:
    std::vector<Fd> silent_;
    int count_ = 0;
};

}  // namespace

TEST_CASE("thousands of strangers at once at the root's listener keep no rank out", "[strangers]") {
    SpreadJob job(2, 2);
    for (int rank = 0; rank < 3; ++rank) job.start(rank, {"init", "loop=2,300", "destroy"}, {quiet});
    const weft::internal::net::Address root =
        UniqueId::read(weft::unique_id_from_text(job.id()))->root_addresses().front();
    Strangers strangers;
    const int connections = small() ? 1000 : 10'000;
    for (int count = 0; count < connections; ++count) {
        if (count == connections / 2) job.start(3, {"init", "loop=2,300", "destroy"}, {quiet});
        strangers.knock(root);
    }
    job.finish();
    for (int rank = 0; rank < 4; ++rank) CHECK(job.answer(rank, "loop") == "0");
}

TEST_CASE("strangers at the ranks' listeners during calls disturb no rank", "[strangers]") {
    NEEDS_A_NETWORK();
    SpreadJob job(2, 1);
    for (int rank = 0; rank < 2; ++rank)
        job.start(rank, {"init", "await", small() ? "loop=100,300" : "loop=100,3000", "async", "destroy"}, {quiet});
    for (int rank = 0; rank < 2; ++rank) CHECK(job[rank].says("init 0"));
    std::vector<weft::internal::net::Address> listeners;
    std::stringstream listening(command({"ss", "-H", "-t", "-l", "-n", "-p"}));
    for (std::string line; std::getline(listening, line);)
        for (int rank = 0; rank < 2; ++rank)
            if (contains(line, "pid=" + std::to_string(job[rank].pid()) + ",")) {
                std::stringstream words(line);
                std::string word;
                for (int i = 0; i < 4; ++i) words >> word;
                if (auto address = weft::internal::net::Address::parse(word); address && !address->is_link_local())
                    listeners.push_back(*address);
            }
    REQUIRE(listeners.size() >= 2);
    for (int rank = 0; rank < 2; ++rank) job[rank].kill(SIGUSR1);
    Strangers strangers;
    for (int count = 0; count < (small() ? 500 : 5000); ++count)
        strangers.knock(listeners[size_t(count) % listeners.size()]);
    job.finish();
    for (int rank = 0; rank < 2; ++rank) {
        CHECK(job.answer(rank, "loop") == "0");
        CHECK(job.answer(rank, "async") == "0");
    }
}
