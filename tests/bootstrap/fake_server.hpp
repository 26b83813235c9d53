// fake_server.hpp: a launcher's server under test: a thread a connection, each running what the test wrote. Servers
// that hang, die or talk nonsense are a handler that does so.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "src/base/fd.hpp"

namespace weft::internal::test {

// The server's end of a connection. Everything is empty, or false, once the other end or the server is gone.
class Line {
  public:
    explicit Line(int descriptor) : descriptor_(descriptor) {}
    bool send(const std::string& bytes) const {
        return ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == ssize_t(bytes.size());
    }
    std::optional<std::string> bytes(size_t count) const {
        std::string text(count, '\0');
        for (size_t got = 0; got < count;) {
            const ssize_t more = recv(descriptor_, text.data() + got, count - got, 0);
            if (more <= 0) return {};
            got += size_t(more);
        }
        return text;
    }
    std::optional<std::string> line() const {
        std::string text;
        while (auto letter = bytes(1)) {
            if (*letter == "\n") return text;
            text += *letter;
        }
        return {};
    }
    // Until the client, or the server, goes.
    void hang() const {
        while (bytes(1)) continue;
    }

  private:
    int descriptor_;
};

using Handler = std::function<void(const Line&)>;

// Runs handlers on connections and ends them all when it goes. Thread-safe.
class Handlers {
  public:
    explicit Handlers(Handler handler) : handler_(std::move(handler)) {}
    ~Handlers() {
        std::vector<std::thread> threads;
        {
            std::lock_guard lock(mutex_);
            for (const Fd& socket : sockets_) shutdown(socket.number(), SHUT_RDWR);
            threads.swap(threads_);
        }
        for (std::thread& thread : threads) thread.join();
    }
    void take(Fd socket) {
        std::lock_guard lock(mutex_);
        const int number = sockets_.emplace_back(std::move(socket)).number();
        threads_.emplace_back([this, number] {
            handler_(Line(number));
            shutdown(number, SHUT_RDWR);
        });
    }

  private:
    Handler handler_;
    std::mutex mutex_;
    std::list<Fd> sockets_;
    std::vector<std::thread> threads_;
};

// On a free port of 127.0.0.1.
class TcpServer {
  public:
    explicit TcpServer(Handler handler)
        : handlers_(std::move(handler)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (bind(listener_.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            listen(listener_.number(), 64) != 0 ||
            getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
            throw std::runtime_error("no port for a fake server");
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] {
            for (int number = 0; (number = accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;)
                handlers_.take(Fd(number));
        });
    }
    ~TcpServer() {
        shutdown(listener_.number(), SHUT_RDWR);  // ends accept
        thread_.join();
    }
    uint16_t port() const { return port_; }

  private:
    Handlers handlers_;
    Fd listener_;
    uint16_t port_ = 0;
    std::thread thread_;
};

// A port without a listener, and without a new one as long as this lives.
class DesertedPort {
  public:
    DesertedPort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (bind(socket_.number(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
            getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
            throw std::runtime_error("no port that is free");
        number_ = ntohs(address.sin_port);
    }
    uint16_t number() const { return number_; }

  private:
    Fd socket_;
    uint16_t number_ = 0;
};

}  // namespace weft::internal::test
