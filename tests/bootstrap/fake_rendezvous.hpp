// fake_rendezvous.hpp: Horovod's rendezvous server under test.
#pragma once
#include <atomic>
#include <map>

#include "tests/bootstrap/fake_server.hpp"

namespace weft::internal::test {

// As http.server.BaseHTTPRequestHandler behaves: HTTP/1.0, the connection ends with the answer.
class FakeRendezvous {
  public:
    uint16_t port() const { return server_.port(); }
    std::atomic<int> requests{0};

  private:
    void serve(const Line& line) {
        const auto request = line.line();
        if (!request) return;
        size_t length = 0;
        for (auto header = line.line(); header && *header != "\r"; header = line.line())
            if (header->rfind("Content-Length: ", 0) == 0) length = std::stoul(header->substr(16));
        const std::string path = request->substr(4, request->find(' ', 4) - 4);
        std::lock_guard lock(mutex_);
        ++requests;
        if (request->rfind("PUT ", 0) == 0) {
            values_[path] = line.bytes(length).value_or("");
            line.send("HTTP/1.0 200 OK\r\nServer: BaseHTTP/0.6 Python/3.11\r\n\r\n");
        } else if (values_.count(path)) {
            line.send("HTTP/1.0 200 OK\r\ncontent-length:" + std::to_string(values_[path].size()) + "\r\n\r\n" +
                      values_[path]);
        } else {
            line.send("HTTP/1.0 404 Not Found\r\nContent-Length: 4\r\n\r\nnone");
        }
    }
    std::mutex mutex_;
    std::map<std::string, std::string> values_;
    TcpServer server_{[this](const Line& line) { serve(line); }};  // last, so that it ends first
};

}  // namespace weft::internal::test
