#include "tools/rdma_check.hpp"

#include <unistd.h>

#include <optional>
#include <sstream>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/drivers/verbs/report.hpp"
#include "src/net/address.hpp"
#include "tools/child.hpp"
#include "tools/perftest.hpp"
#include "tools/process_end.hpp"
#include "tools/rdma_figures.hpp"

namespace weft::internal::tools {

namespace {

constexpr int64_t part_limit_ms = 120'000, nap_ms = 20;
constexpr const char *only_verbs = "WEFT_TRANSPORTS=verbs", *only_tcp = "WEFT_TRANSPORTS=tcp",
                     *verbs_or_tcp = "WEFT_TRANSPORTS=verbs,tcp";
constexpr int tries_to_connect = 20;  // of a client of perftest, whose server may come later

// One part of the check: a process on each host.
struct RdmaScene {
    const char* name;                                      // in the table
    const char* part;                                      // RdmaPart::name
    const char* transports[2] = {only_verbs, only_verbs};  // of each rank
    const char* variable = "WEFT_DEBUG=INFO";              // of both ranks
    bool little_memory = false;
    const char* wanted = "";  // an error's id, on both ranks; empty: success
    bool kills = false;       // rank 1, once both have talked
};
constexpr RdmaScene transfers{.name = "messages, collectives, windows", .part = "transfers"};
constexpr RdmaScene times{.name = "measurement", .part = "times"};
constexpr RdmaScene failures[] = {
    {.name = "a device that does not exist",
     .part = "transfers",
     .variable = "WEFT_IB_DEVICES=no_such_device",
     .wanted = "option.names"},
    {.name = "64 KiB that may be pinned", .part = "transfers", .little_memory = true, .wanted = "verbs.memlock"},
    {.name = "RDMA on one host only", .part = "transfers", .transports = {verbs_or_tcp, only_tcp}},
    {.name = "a rank that is killed", .part = "alive", .kills = true},
};

// The results of both processes of a part.
struct Outcome {
    std::array<std::string, 2> said, log, end;  // by rank; `end` is empty after success
    bool over(int rank, const char* transport) const {
        return log[size_t(rank)].find(fmt::format("over {}, ", transport)) != std::string::npos;
    }
    // The number after a line's first word.
    std::optional<double> number(const std::string& name) const {
        for (const std::string& text : said) {
            std::istringstream lines(text);
            for (std::string line; std::getline(lines, line);)
                if (line.starts_with(name + " ")) return std::strtod(line.c_str() + name.size(), nullptr);
        }
        return {};
    }
    std::string error_of(int rank) const {  // "verbs.memlock -1 sentence"; empty: none
        const std::string& text = said[size_t(rank)];
        const size_t at = text.find("error ");
        return at == std::string::npos ? "" : text.substr(at + 6, text.find('\n', at) - at - 6);
    }
};

class Check {
  public:
    Check(RdmaMeeting& meeting, const RdmaCheckPlan& plan) : meeting_(meeting), plan_(plan) {}

    Result<bool> run() {
        WEFT_TRY(agree());
        auto usable = describe();
        if (!usable || !*usable) return usable;
        WEFT_TRY(run_transfers());
        if (plan_.failures)
            for (const RdmaScene& scene : failures) WEFT_TRY(provoke(scene));
        if (plan_.measures && good_) WEFT_TRY(measure());
        return good_;
    }

  private:
    template <class... Arguments>
    void print(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        if (meeting_.rank() == 0) print_output(format, std::forward<Arguments>(arguments)...);
        flush_output();
    }
    void judge(const char* name, const std::string& wrong, const std::string& remark = "") {
        print("  {:<32} {}{}\n", name, wrong.empty() ? "ok" : "FAILED: " + wrong, remark.empty() ? "" : ", " + remark);
        good_ = good_ && wrong.empty();
    }

    // The options of rank 0 count: both processes must play the same parts.
    Status agree() {
        const auto both = meeting_.exchange(
            fmt::format("{} {} {} {}", plan_.runs, int(plan_.measures), int(plan_.failures), plan_.socket_port));
        if (!both) return both.status().copy();
        std::istringstream((*both)[0]) >> plan_.runs >> plan_.measures >> plan_.failures >> plan_.socket_port;
        return ok();
    }

    // The ports of both hosts.
    Result<bool> describe() {
        const verbs::IbReport report = verbs::describe_ib(options());
        std::string own = fmt::format("{}\n", host_name());
        for (const verbs::IbPort& port : report.ports) {
            own += fmt::format("  {:<14} {}{}\n", port.name(), port.summary(),
                               port.usable() ? "" : "; not used: " + port.why_not);
            for (const std::string& note : port.notes) own += fmt::format("  {:<14} {}\n", "", note);
        }
        for (const std::string& note : report.notes) own += fmt::format("  {:<14} {}\n", "", note);
        std::string trouble = report.why_not;
        if (trouble.empty() && !report.status.ok()) trouble = report.status.sentence();
        if (!trouble.empty()) own += fmt::format("  no RDMA: {}\n", trouble);
        const auto both = meeting_.exchange(own), troubles = meeting_.exchange(trouble);
        if (!both) return both.status().copy();
        if (!troubles) return troubles.status().copy();
        print("\n{}{}\n", (*both)[0], (*both)[1]);
        return (*troubles)[0].empty() && (*troubles)[1].empty();
    }

    Result<Outcome> play(const RdmaScene& scene) {
        const size_t rank = size_t(meeting_.rank());
        std::string own_id;
        try {
            if (rank == 0) own_id = weft::to_text(weft::make_unique_id());
        } catch (const weft::Error& error) {
            return fail(error::command_system, "{}", error.what());
        }
        const auto ids = meeting_.exchange(own_id);
        if (!ids) return ids.status().copy();
        std::vector<std::string> words{"/proc/self/exe", "rdma-check", "--part", scene.part,
                                       "--id",           (*ids)[0],    "--rank", std::to_string(rank)};
        if (scene.little_memory) words.emplace_back("--little-memory");
        auto child = Child::start(words, {scene.transports[rank], scene.variable, "WEFT_DEBUG=INFO",
                                          "WEFT_INIT_TIMEOUT_MS=60000", "WEFT_TIMEOUT_MS=60000"});
        if (!child) return child.take_status();
        if (scene.kills && rank == 1) await_and_kill(*child);
        std::string end;
        if (!child->wait(part_limit_ms))
            end = fmt::format("rank {} did not end within {} s", rank, part_limit_ms / 1000);
        else if (child->status() != 0)
            end = fmt::format("rank {} ended with {}", rank, end_text(child->status()));
        Outcome outcome;
        for (auto [own, all] : {std::pair(child->output(), &outcome.said), std::pair(child->error(), &outcome.log),
                                std::pair(end, &outcome.end)}) {
            auto both = meeting_.exchange(own);
            if (!both) return both.take_status();
            *all = std::move(*both);
        }
        return outcome;
    }

    static void await_and_kill(Child& child) {
        for (const int64_t until = now_us() + part_limit_ms * 1000; now_us() < until && !child.ended();) {
            if (child.output().find("alive") != std::string::npos) break;
            usleep(nap_ms * 1000);
        }
        usleep(200'000);  // in the middle of calls
        child.kill();
    }

    // Empty: both ranks have ended without an error.
    static std::string trouble_of(const Outcome& outcome) {
        std::string text;
        for (int rank = 0; rank < 2; ++rank) {
            if (outcome.end[size_t(rank)].empty()) continue;
            const std::string error = outcome.error_of(rank);
            if (!error.empty())
                text += fmt::format("{}rank {}: {}", text.empty() ? "" : "; ", rank, error);
            else
                text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", outcome.end[size_t(rank)],
                                    outcome.said[size_t(rank)]);
        }
        return text;
    }

    Status run_transfers() {
        auto played = play(transfers);
        if (!played) return played.take_status();
        std::string wrong = trouble_of(*played);
        if (wrong.empty() && !played->over(0, "verbs")) wrong = "they did not go over verbs";
        end_ = rdma_end_of(played->log[size_t(meeting_.rank())]);
        print("tests\n");
        judge(transfers.name, wrong, wrong.empty() ? fmt::format("{:.0f} checked", *played->number("transfers")) : "");
        if (const size_t at = played->log[0].find(" links "); at != std::string::npos)
            print("  {:<32}{}\n", "", played->log[0].substr(at, played->log[0].find('\n', at) - at));
        return ok();
    }

    Status provoke(const RdmaScene& scene) {
        auto played = play(scene);
        if (!played) return played.take_status();
        const std::string wanted = scene.wanted;
        const bool unlimited = scene.little_memory && trouble_of(*played).empty();
        if (scene.kills) {
            const std::string error = played->error_of(0);
            const double after_s = played->number("after_s").value_or(0);
            const bool named = error.find("rank 1") != std::string::npos;
            judge(scene.name, named && after_s < 10 ? "" : "rank 0 says: " + error + played->end[0],
                  named ? fmt::format("an error after {:.1f} s", after_s) : "");
        } else if (unlimited) {
            judge(scene.name, "", "the limit has no effect here");
        } else if (!wanted.empty()) {
            std::string wrong;
            for (int rank = 0; rank < 2; ++rank)
                if (!played->error_of(rank).starts_with(wanted + " "))
                    wrong += fmt::format("rank {} says: {} ", rank, played->error_of(rank));
            judge(scene.name, wrong, wrong.empty() ? fmt::format("{} on both ranks", wanted) : "");
        } else {
            std::string wrong = trouble_of(*played);
            if (wrong.empty() && !played->over(0, "tcp")) wrong = "rank 0 did not fall back to TCP";
            judge(scene.name, wrong, wrong.empty() ? "both use TCP" : "");
        }
        return ok();
    }

    // Both processes have come here.
    Status meet() { return meeting_.exchange("").take_status(); }

    // 0: not installed on both hosts, or it failed.
    Result<double> play_perftest(const Perftest& test) {
        const bool first = meeting_.rank() == 0;
        const auto addresses = net::local_addresses();
        const std::string own = addresses && !addresses->empty() ? addresses->front().text() : "";
        const auto hosts = meeting_.exchange(is_installed(test.program) && !end_.device.empty() ? own : "");
        if (!hosts) return hosts.status().copy();
        if ((*hosts)[0].empty() || (*hosts)[1].empty()) return 0.0;
        const std::vector<std::string> words = perftest_words(test, end_, plan_.socket_port, first ? "" : (*hosts)[0]);
        double figure = 0;
        if (first) {
            auto server = Child::start(words);
            if (!server) return server.take_status();
            WEFT_TRY(meet());
            // Rank 1 has ended its tries.
            WEFT_TRY(meet());
        } else {
            WEFT_TRY(meet());
            for (int attempt = 0; attempt < tries_to_connect && figure == 0; ++attempt) {
                usleep(nap_ms * 5000);
                auto client = Child::start(words);
                if (!client) return client.take_status();
                if (client->wait(part_limit_ms / 4)) figure = perftest_figure(test, client->output());
            }
            WEFT_TRY(meet());
        }
        const auto both = meeting_.exchange(fmt::format("{}", figure));
        if (!both) return both.status().copy();
        return std::strtod((*both)[1].c_str(), nullptr);
    }

    Status measure() {
        print("\nmeasurements\n");
        RdmaFigures figures;
        for (int run = 0; run < plan_.runs; ++run) {
            figures.begin_run();
            auto played = play(times);
            if (!played) return played.take_status();
            if (const std::string wrong = trouble_of(*played); !wrong.empty()) return judge(times.name, wrong), ok();
            for (const char* name : {"latency_us", "stream_mib_per_s", "both_mib_per_s", "rate_per_s",
                                     "registration_1_us", "registration_64_us"})
                if (const auto number = played->number(name)) figures.add(name, *number);
            for (const Perftest& test : {send_latency, write_bandwidth}) {
                auto figure = play_perftest(test);
                if (!figure) return figure.take_status();
                if (*figure > 0) figures.add(test.program, *figure);
            }
            print("  run {}:{}\n", run + 1, figures.run_text());
        }
        print_table(figures);
        return ok();
    }

    void print_table(const RdmaFigures& figures) {
        print("\nmedians of {} runs\n  {:<24} {:>12}          {:>12} {:>6}\n", plan_.runs, "", "Weft", "perftest",
              "ratio");
        struct Row {
            const char *text, *name, *unit, *other;
        };
        for (const Row& row :
             {Row{"8 B, half round trip", "latency_us", "us", send_latency.program},
              Row{"1 MiB, one direction", "stream_mib_per_s", "MiB/s", write_bandwidth.program},
              Row{"1 MiB, both directions", "both_mib_per_s", "MiB/s", ""},
              Row{"8 B messages", "rate_per_s", "1/s", ""}, Row{"registration of 1 MiB", "registration_1_us", "us", ""},
              Row{"registration of 64 MiB", "registration_64_us", "us", ""}}) {
            const double ours = figures.median_of(row.name), other = figures.median_of(row.other);
            print("  {:<24} {:>12.6g} {:<8} {:>12} {:>6}{}{}{}\n", row.text, ours, row.unit,
                  other > 0 ? fmt::format("{:.6g}", other) : "-", other > 0 ? fmt::format("{:.2f}", ours / other) : "-",
                  *row.other ? "  " : "", row.other, figures.lack_text(row.other));
        }
        if (figures.runs_with(send_latency.program) == 0)
            print("  perftest did not run: install it on both hosts to compare (apt-get install perftest)\n");
    }

    RdmaMeeting& meeting_;
    RdmaCheckPlan plan_;
    RdmaEnd end_;  // of this rank
    bool good_ = true;
};

}  // namespace

Result<bool> check_rdma_between(RdmaMeeting& meeting, const RdmaCheckPlan& plan) { return Check(meeting, plan).run(); }

}  // namespace weft::internal::tools
