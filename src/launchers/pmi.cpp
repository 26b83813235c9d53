#include "src/launchers/pmi.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/launchers/mpi_library.hpp"
#include "src/launchers/server_connection.hpp"

namespace weft::internal {

namespace {

constexpr size_t answer_line_most = 16 * 1024;  // answers of servers are much shorter
constexpr const char* id_key = "weft_unique_id";

using Fields = std::map<std::string, std::string>;

// key=value between separators. Our values contain no doubled separator (PMI-2's escape).
Fields fields_of(const std::string& text, char separator) {
    Fields fields;
    std::stringstream stream(text);
    for (std::string word; std::getline(stream, word, separator);) {
        const size_t equals = word.find('=');
        if (equals != std::string::npos) fields[word.substr(0, equals)] = word.substr(equals + 1);
    }
    return fields;
}

// The fields of an answer, which must be named `expected` and contain no error.
Result<Fields> checked(const ServerConnection& connection, const std::string& answer, char separator,
                       const char* expected) {
    Fields fields = fields_of(answer, separator);
    const auto rc = fields.find("rc");
    if (fields["cmd"] != expected || (rc != fields.end() && rc->second != "0"))
        return connection.unexpected_answer(fmt::format("`{}` without an error", expected), answer);
    return fields;
}

// One line each way: cmd=name key=value ...
class Version1 {
  public:
    static Result<Fields> ask(ServerConnection& connection, const std::string& request, const char* expected) {
        WEFT_TRY(connection.send(request + "\n"));
        auto line = connection.receive_line(answer_line_most, fmt::format("`{}`", expected));
        if (!line) return line.take_status();
        return checked(connection, *line, ' ', expected);
    }
    static Result<std::string> exchange(ServerConnection& connection, const IdExchange& exchange) {
        auto maxes = ask(connection, "cmd=get_maxes", "maxes");
        if (!maxes) return maxes.take_status();
        const auto most = parse_integer((*maxes)["vallen_max"]);
        if (!most || *most <= int64_t(exchange.text.size()))
            return fail(error::launcher_lost, "{} takes values of at most `{}` characters, and {} are needed",
                        connection.server(), shown((*maxes)["vallen_max"]), exchange.text.size() + 1);
        auto name = ask(connection, "cmd=get_my_kvsname", "my_kvsname");
        if (!name) return name.take_status();
        const std::string store = (*name)["kvsname"];
        if (exchange.rank == 0) {
            const std::string put = fmt::format("cmd=put kvsname={} key={} value={}", store, id_key, exchange.text);
            if (auto answer = ask(connection, put, "put_result"); !answer) return answer.take_status();
        }
        if (auto answer = ask(connection, "cmd=barrier_in", "barrier_out"); !answer) return answer.take_status();
        auto got = ask(connection, fmt::format("cmd=get kvsname={} key={}", store, id_key), "get_result");
        if (!got) return got.take_status();
        return (*got)["value"];
    }
    static constexpr const char* finalize = "cmd=finalize\n";
};

// A length of six characters before each frame: cmd=name;key=value;...
class Version2 {
  public:
    static Result<Fields> ask(ServerConnection& connection, const std::string& request, const char* expected) {
        const std::string what = fmt::format("`{}`", expected);
        WEFT_TRY(connection.send(fmt::format("{:<6}{}", request.size(), request)));
        auto head = connection.receive(6, what);
        if (!head) return head.take_status();
        std::string digits = *head;
        digits.erase(std::remove(digits.begin(), digits.end(), ' '), digits.end());
        const auto bytes = parse_integer(digits);
        if (!bytes || *bytes < 1 || *bytes > int64_t(answer_line_most))
            return connection.unexpected_answer(what, *head);
        auto frame = connection.receive(size_t(*bytes), what);
        if (!frame) return frame.take_status();
        return checked(connection, *frame, ';', expected);
    }
    static Result<std::string> exchange(ServerConnection& connection, const std::string& job,
                                        const IdExchange& exchange) {
        auto full =
            ask(connection, fmt::format("cmd=fullinit;pmijobid={};pmirank={};threaded=FALSE;", job, exchange.rank),
                "fullinit-response");
        if (!full) return full.take_status();
        if (exchange.rank == 0) {
            const std::string put = fmt::format("cmd=kvs-put;key={};value={};", id_key, exchange.text);
            if (auto answer = ask(connection, put, "kvs-put-response"); !answer) return answer.take_status();
        }
        if (auto answer = ask(connection, "cmd=kvs-fence;", "kvs-fence-response"); !answer) return answer.take_status();
        const std::string get = fmt::format("cmd=kvs-get;jobid={};srcid=-1;key={};", job, id_key);
        auto got = ask(connection, get, "kvs-get-response");
        if (!got) return got.take_status();
        return (*got)["value"];
    }
    static constexpr const char* finalize = "13    cmd=finalize;";
};

// Sends `finalize` when the process ends, as the launcher expects after `init`.
class PendingFinalize {
  public:
    PendingFinalize(Fd socket, const char* words) : socket_(std::move(socket)), words_(words) {}
    PendingFinalize(PendingFinalize&&) = default;
    ~PendingFinalize() {
        // A later MPI sends its own `finalize`, or omits it to end the job.
        const MpiState mpi = mpi_state();
        if (!socket_ || mpi == MpiState::initialized || mpi == MpiState::finalized) return;
        ServerConnection connection("PMI", socket_.number(), Deadline::in_ms(2000));
        // A failure is ignored: the process ends anyway.
        if (connection.send(words_).ok()) (void)connection.receive(6, "the answer to finalize").ok();
    }

  private:
    Fd socket_;
    const char* words_;
};

// A forked child leaves them and their lock to its parent.
struct PendingFinalizes {
    std::mutex mutex;
    std::vector<PendingFinalize> all;  // one for each process; several in tests
};
PendingFinalizes& pending_finalizes() {
    static PerProcess<PendingFinalizes> processes;
    return processes.get();
}

void finalize_all() {
    std::lock_guard lock(pending_finalizes().mutex);
    pending_finalizes().all.clear();
}

void finalize_at_exit(int descriptor, const char* words) {
    static const int registered = atexit(finalize_all);
    (void)registered;
    // A duplicate, because the number may have another use by then.
    Fd socket = Fd::duplicate(descriptor);
    std::lock_guard lock(pending_finalizes().mutex);
    if (socket) pending_finalizes().all.emplace_back(std::move(socket), words);
}

bool is_socket(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

Result<int> agreed_version(ServerConnection& connection) {
    // All known servers speak version 1. A server that refuses it is asked for version 2.
    for (const int version : {1, 2}) {
        WEFT_TRY(
            connection.send(fmt::format("cmd=init pmi_version={} pmi_subversion={}\n", version, version == 1 ? 1 : 0)));
        auto line = connection.receive_line(answer_line_most, "`response_to_init`");
        if (!line) return line.take_status();
        Fields fields = fields_of(*line, ' ');
        if (fields["cmd"] != "response_to_init") return connection.unexpected_answer("`response_to_init`", *line);
        if (fields["rc"] == "0" && (fields["pmi_version"].empty() || fields["pmi_version"] == std::to_string(version)))
            return version;
        if (version == 2) return connection.unexpected_answer("`response_to_init` of PMI 1 or 2", *line);
    }
    return fail(error::internal_state, "PMI: no version was requested");
}

}  // namespace

Result<ExchangedText> exchange_by_pmi(int descriptor, const std::string& job, const IdExchange& exchange) {
    if (!is_socket(descriptor))
        return no_id_transport(fmt::format("PMI_FD {} is closed in this process, or no socket", descriptor));
    if (const MpiState mpi = mpi_state(); mpi == MpiState::initialized || mpi == MpiState::finalized)
        return no_id_transport("MPI was initialised before and owns the connection to the launcher");
    ServerConnection connection(fmt::format("the launcher's PMI server (PMI_FD {})", descriptor), descriptor,
                                exchange.deadline);
    auto version = agreed_version(connection);
    if (!version) return version.take_status();
    finalize_at_exit(descriptor, *version == 1 ? Version1::finalize : Version2::finalize);
    auto text =
        *version == 1 ? Version1::exchange(connection, exchange) : Version2::exchange(connection, job, exchange);
    if (!text) return text.take_status();
    return ExchangedText{*text, {}};
}

std::string pmi_server_identity(int descriptor) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return {};
    const std::string text = system_file(fmt::format("/proc/{}/stat", peer.pid));
    // Field 22, counted after the name (which may contain anything), is the start time since boot.
    std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size())));
    std::string field;
    for (int i = 2; i <= 22; ++i) fields >> field;
    return fields ? fmt::format("{} {}", peer.pid, field) : std::string();
}

}  // namespace weft::internal
