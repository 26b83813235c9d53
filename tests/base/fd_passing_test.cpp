// fd_passing_test.cpp: sets of passed file descriptors. A process that knows address and number gets a set, another
// gets nothing, and nothing waits longer than asked.
#include "src/net/fd_passing.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>

#include "src/base/clock.hpp"
#include "src/base/options.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/open_descriptors.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {
namespace {

constexpr int64_t long_us = 60'000'000;

std::shared_ptr<FdServer> fd_server_of_process() {
    auto fd_server = FdServer::of_process();
    INFO(fd_server.status().sentence());
    REQUIRE(fd_server.ok());
    return *fd_server;
}

// Each holds its number.
PassedFds fds_of(size_t count, const std::string& text) {
    PassedFds fds;
    const auto bytes = std::as_bytes(std::span(text));
    fds.text.assign(bytes.begin(), bytes.end());
    for (size_t i = 0; i < count; ++i) {
        Fd fd(memfd_create("weft-test", MFD_CLOEXEC));
        REQUIRE(write(fd.number(), &i, sizeof i) == sizeof i);
        fds.descriptors.emplace_back(std::move(fd));
    }
    return fds;
}

bool are_fds_of(const PassedFds& fds, size_t count, const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    if (fds.descriptors.size() != count || !std::equal(fds.text.begin(), fds.text.end(), bytes.begin(), bytes.end()))
        return false;
    for (size_t i = 0; i < count; ++i) {
        size_t number = SIZE_MAX;
        if (pread(fds.descriptors[i].number(), &number, sizeof number, 0) != sizeof number || number != i ||
            fcntl(fds.descriptors[i].number(), F_GETFD) != FD_CLOEXEC)
            return false;
    }
    return true;
}

std::string failure_of(const FdServerAddress& from, uint64_t number, int64_t patience_us = long_us) {
    return fetch_fds(from, number, now_us() + patience_us).status().sentence();
}

// A socket of that name, with a waiting client in its queue.
Fd silent_listener(const FdServerAddress& address) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length =
        snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "weft-fd-passing-%016llx%016llx",
                 static_cast<unsigned long long>(address.name[0]), static_cast<unsigned long long>(address.name[1]));
    Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(bind(listener.number(), reinterpret_cast<sockaddr*>(&name),
                 socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(length))) == 0);
    REQUIRE(listen(listener.number(), 1) == 0);
    return listener;
}

// A packet with one of them, as a process's server sends them.
[[maybe_unused]] void send_of_three_fds(const Fd& client, const Fd& descriptor) {
    uint64_t reply[4] = {0x7765'6674'6d61'696c, 1, 0, 3};
    iovec part{reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = descriptor.number();
    memcpy(CMSG_DATA(rights), &number, sizeof number);
    CHECK(sendmsg(client.number(), &header, MSG_NOSIGNAL) >= 0);
}

}  // namespace

TEST_CASE("a set is fetched whole, as often as anybody likes, until it is withdrawn", "[descriptor_mail]") {
    const auto fd_server = fd_server_of_process();
    CHECK(fd_server_of_process() == fd_server);
    // Packets have room for 128.
    for (const size_t count : {0, 1, 127, 128, 129, 300}) {
        const std::string text(count * 8, char('a' + count % 26));
        const uint64_t number = fd_server->post(fds_of(count, text));
        for (int round = 0; round < 2; ++round) {
            auto fetched = fetch_fds(fd_server->address(), number, now_us() + long_us);
            INFO(fetched.status().sentence());
            REQUIRE(fetched.ok());
            CHECK(are_fds_of(*fetched, count, text));
        }
        fd_server->withdraw(number);
        CHECK_THAT(failure_of(fd_server->address(), number), Catch::Contains("has withdrawn them"));
    }
    const std::string longest(passed_text_max, 'x');
    const uint64_t number = fd_server->post(fds_of(1, longest));
    auto fetched = fetch_fds(fd_server->address(), number, now_us() + long_us);
    REQUIRE(fetched.ok());
    CHECK(are_fds_of(*fetched, 1, longest));
}

TEST_CASE("many fetch at once", "[descriptor_mail]") {
    const auto fd_server = fd_server_of_process();
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < 4; ++i) numbers.push_back(fd_server->post(fds_of(i * 70, std::to_string(i))));
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 8; ++thread)
        threads.emplace_back([&, thread] {
            for (size_t round = 0; round < 10; ++round) {
                const size_t i = (thread + round) % numbers.size();
                const auto fetched = fetch_fds(fd_server->address(), numbers[i], now_us() + long_us);
                right += fetched.ok() && are_fds_of(*fetched, i * 70, std::to_string(i));
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 80);
}

TEST_CASE("descriptors are closed when their set is withdrawn, and the rest when the fd server ends",
          "[descriptor_mail]") {
    const size_t before = open_descriptors();
    auto fd_server = fd_server_of_process();
    const size_t empty = open_descriptors();
    const uint64_t first = fd_server->post(fds_of(5, ""));
    fd_server->post(fds_of(7, ""));
    CHECK(open_descriptors() == empty + 12);
    fd_server->withdraw(first);
    CHECK(open_descriptors() == empty + 7);
    const FdServerAddress address = fd_server->address();
    fd_server.reset();
    CHECK(open_descriptors() == before);
    CHECK_THAT(failure_of(address, 2), Catch::Contains("has ended, or is in another network namespace"));
    // The next one has another address.
    CHECK(fd_server_of_process()->address().name[0] != address.name[0]);
}

TEST_CASE("a process without the secret gets nothing, and a silent one disturbs no other", "[descriptor_mail]") {
    const auto fd_server = fd_server_of_process();
    const uint64_t number = fd_server->post(fds_of(2, "text"));
    FdServerAddress wrong = fd_server->address();
    wrong.secret[1] ^= 1;
    CHECK_THAT(failure_of(wrong, number), Catch::Contains("closed the connection"));
    // As many as are heard at once, and some that wait.
    std::vector<Fd> silent;
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "weft-fd-passing-%016llx%016llx",
                                static_cast<unsigned long long>(fd_server->address().name[0]),
                                static_cast<unsigned long long>(fd_server->address().name[1]));
    for (int i = 0; i < 70; ++i) {
        silent.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        REQUIRE(connect(silent.back().number(), reinterpret_cast<sockaddr*>(&name),
                        socklen_t(offsetof(sockaddr_un, sun_path) + 1 + size_t(length))) == 0);
    }
    const auto fetched = fetch_fds(fd_server->address(), number, now_us() + long_us);
    INFO(fetched.status().sentence());
    CHECK(fetched.ok());
}

TEST_CASE("a silent server is waited for until the deadline", "[descriptor_mail]") {
    const FdServerAddress address{{uint64_t(getpid()), 4711}, {1, 2}};
    const Fd listener = silent_listener(address);
    for (int round = 0; round < 4; ++round) {  // the last ones find the queue full
        const auto fetched = fetch_fds(address, 1, now_us() + 20'000);
        CHECK_ERROR(fetched, "shm.descriptor-timeout");
    }
}

TEST_CASE("a process without a free descriptor gets an error, and received descriptors are closed",
          "[descriptor_mail][descriptors_end]") {
    const auto fd_server = fd_server_of_process();
    const uint64_t number = fd_server->post(fds_of(100, ""));
    const size_t before = open_descriptors();
    rlimit limit{}, low{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = {before + 20, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    const std::string failure = failure_of(fd_server->address(), number);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    // The same with WEFT_RAISE_NOFILE=0 (meson.build).
    if (options().raise_nofile)
        CHECK(failure == failure_of(fd_server->address(), number));
    else
        CHECK_THAT(failure, Catch::Contains("ulimit -n"));
    CHECK(eventually([&] { return open_descriptors() == before; }));
}

#if !WEFT_TEST_TSAN  // which ends a program that forks and goes on
TEST_CASE("a child has fd server of its own", "[descriptor_mail]") {
    const auto fd_server = fd_server_of_process();
    const uint64_t number = fd_server->post(fds_of(1, "parent"));
    const pid_t child = fork();
    if (child == 0) {
        const auto own = FdServer::of_process();
        const bool right = own.ok() && (*own)->address().name[0] != fd_server->address().name[0] &&
                           fetch_fds(fd_server->address(), number, now_us() + long_us).ok();
        _exit(right ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

TEST_CASE("a surviving child keeps neither its parent's socket nor the descriptors of its sets", "[descriptor_mail]") {
    auto fd_server = fd_server_of_process();
    const FdServerAddress address = fd_server->address();
    // More than one table of what a child closes holds.
    std::vector<Fd> readers;
    PassedFds fds;
    for (int i = 0; i < 100; ++i) {
        int ends[2];
        REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
        readers.emplace_back(ends[0]);
        fds.descriptors.emplace_back(Fd(ends[1]));
    }
    const uint64_t number = fd_server->post(std::move(fds));
    const pid_t child = fork();
    if (child == 0) {
        // The child opens descriptors with the numbers of closed ones, and its parent's owners leave them alone.
        Fd own[200];
        for (Fd& fd : own) fd = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
        fd_server.reset();
        for (const Fd& fd : own)
            if (fcntl(fd.number(), F_GETFD) < 0) _exit(1);
        for (;;) pause();
    }
    fd_server->withdraw(number);
    for (const Fd& reader : readers) {
        char byte;
        CHECK(read(reader.number(), &byte, 1) == 0);  // nobody can write any more
    }
    fd_server.reset();
    CHECK_THAT(failure_of(address, number), Catch::Contains("has ended"));
    REQUIRE(waitpid(child, nullptr, WNOHANG) == 0);
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, nullptr, 0) == child);
}

TEST_CASE("a child that lives on keeps nothing of a set that its parent is fetching", "[descriptor_mail]") {
    const FdServerAddress address{{uint64_t(getpid()), 4712}, {1, 2}};
    const Fd listener = silent_listener(address);
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const Fd reader(ends[0]);
    Fd writer(ends[1]);
    const size_t before = open_descriptors();
    std::string failure;
    std::thread fetching([&] { failure = failure_of(address, 1); });
    const Fd client(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    // Of a set of three, two come. When the second one is open, the first one has its owner. The second one may not
    // have an owner yet, so it is another file than the pipe.
    send_of_three_fds(client, writer);
    send_of_three_fds(client, Fd::event());
    CHECK(eventually([&] { return open_descriptors() == before + 4; }));  // and both ends of the socket
    writer.reset();
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    CHECK(send(client.number(), "?", 1, MSG_NOSIGNAL) == 1);
    fetching.join();
    CHECK_THAT(failure, Catch::Contains("sent something else"));
    char request[64];
    CHECK(recv(client.number(), request, sizeof request, 0) > 1);
    // No process has the other end of the socket any more, and none can write.
    CHECK(eventually([&] { return recv(client.number(), request, sizeof request, MSG_DONTWAIT) == 0; }));
    CHECK(eventually([&] { return read(reader.number(), request, 1) == 0; }));
    REQUIRE(waitpid(child, nullptr, WNOHANG) == 0);
    kill(child, SIGKILL);
    REQUIRE(waitpid(child, nullptr, 0) == child);
}
#endif

}  // namespace weft::internal::test
