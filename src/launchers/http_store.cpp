#include "src/launchers/http_store.hpp"

#include <strings.h>

#include <chrono>
#include <thread>

#include "src/base/options.hpp"
#include "src/launchers/server_connection.hpp"

namespace weft::internal {

namespace {

constexpr size_t header_line_most = 8 * 1024, headers_most = 100, body_most = 64 * 1024;
constexpr const char* server_name = "Horovod's rendezvous server (HOROVOD_GLOO_RENDEZVOUS_ADDR, _PORT)";

struct Answer {
    int64_t code;
    std::string body;
};

Result<Answer> read_answer(ServerConnection& server, const std::string& what) {
    auto status = server.receive_line(header_line_most, what);
    if (!status) return status.take_status();
    // HTTP/1.0 200 OK
    const auto code = parse_integer(status->substr(std::min<size_t>(9, status->size()), 3));
    if (status->rfind("HTTP/1.", 0) != 0 || !code) return server.unexpected_answer(what, *status);
    int64_t bytes = 0;
    for (size_t i = 0;; ++i) {
        auto header = server.receive_line(header_line_most, what);
        if (!header) return header.take_status();
        if (header->empty()) break;
        const std::string name = "content-length:";
        if (strncasecmp(header->c_str(), name.c_str(), name.size()) == 0) {
            const size_t digits = header->find_first_not_of(' ', name.size());
            const auto length = parse_integer(digits == std::string::npos ? "" : header->substr(digits));
            if (!length || *length < 0 || *length > int64_t(body_most)) return server.unexpected_answer(what, *header);
            bytes = *length;
        }
        if (i == headers_most) return server.unexpected_answer(what, *header);
    }
    // The bodies of other answers are not read: the server closes after each answer.
    if (*code != 200) return Answer{*code, {}};
    auto body = server.receive(size_t(bytes), what);
    if (!body) return body.take_status();
    return Answer{*code, std::move(*body)};
}

}  // namespace

Result<ExchangedText> exchange_by_http(const std::string& host, uint16_t port, const IdExchange& exchange) {
    const std::string path = "/weft/unique_id";
    const std::string what = "rank 0's unique id: does rank 0 run, and call Weft?";
    // Horovod's server speaks HTTP 1.0, which needs a connection for each request, and it does not wait for a key.
    for (auto pause = std::chrono::milliseconds(10);; pause = std::min(2 * pause, std::chrono::milliseconds(500))) {
        auto connection = ServerConnection::connect(server_name, host, port, exchange.deadline);
        if (!connection) return connection.take_status();
        if (!*connection) return no_id_transport(fmt::format("no process serves {} at {}:{}", server_name, host, port));
        ServerConnection& server = **connection;
        const std::string head = fmt::format(" {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\n", path, host, port);
        if (exchange.rank == 0) {
            WEFT_TRY(server.send(
                fmt::format("PUT{}Content-Length: {}\r\n\r\n{}", head, exchange.text.size(), exchange.text)));
        } else {
            WEFT_TRY(server.send(fmt::format("GET{}\r\n", head)));
        }
        auto answer = read_answer(server, exchange.rank == 0 ? "the answer to PUT" : what);
        if (!answer) return answer.take_status();
        if (answer->code == 200) return ExchangedText{exchange.rank == 0 ? exchange.text : answer->body, {}};
        if (exchange.rank == 0 || answer->code != 404)
            return fail(error::launcher_lost, "{} answered {} to {} {}", server.server(), answer->code,
                        exchange.rank == 0 ? "PUT" : "GET", path);
        if (exchange.deadline.passed())
            return fail(error::launcher_timeout, "{}: waited {} ms for {}", server.server(), exchange.deadline.all_ms(),
                        what);
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace weft::internal
