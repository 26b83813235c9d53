// job.hpp: the processes of a job under test. They are started with their steps (worker.cpp) and waited for with a
// limit that only a hang reaches; nothing may be left behind.
#pragma once
#include <dirent.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/rendezvous/unique_id.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/subprocess.hpp"
#include "weft/weft.hpp"

namespace weft::internal::test {

inline std::string new_id() { return weft::to_text(weft::make_unique_id()); }
inline std::string rendezvous_name(const std::string& id) {
    return UniqueId::read(weft::unique_id_from_text(id))->rendezvous_name();
}

// Names of Weft's in the folders where things are left behind.
inline std::set<std::string> files_of_weft() {
    std::set<std::string> names;
    for (const std::string folder : {"/dev/shm", "/tmp"}) {
        DIR* directory = opendir(folder.c_str());
        if (!directory) continue;
        while (const dirent* entry = readdir(directory)) {
            const std::string name = entry->d_name;
            // Other tests, running at the same time, name their folders weft_..._test_....
            if (name.find("weft") != std::string::npos && name.find("_test_") == std::string::npos &&
                name.rfind("build", 0) != 0)
                names.insert(folder + "/" + name);
        }
        closedir(directory);
    }
    return names;
}

inline bool socket_exists(const std::string& name) {
    std::ifstream file("/proc/net/unix");
    for (std::string line; std::getline(file, line);)
        if (line.find("@" + name) != std::string::npos) return true;
    return false;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
// Thousands of expected errors need no warning each.
inline const std::string quiet = "WEFT_DEBUG=NONE";

// The steps of one process (worker.cpp).
using Steps = std::vector<std::string>;

class Job {
  public:
    explicit Job(int ranks, std::string id = new_id())
        : id_(std::move(id)), ranks_(ranks), ids_{id_}, files_(files_of_weft()) {}
    ~Job() {
        for (auto& process : processes_) process->kill(SIGKILL);
    }

    const std::string& id() const { return id_; }
    // Of processes started from now on: for an id that a process of the job made.
    void use_id(const std::string& id) { ids_.insert(id_ = id); }
    // An id for a communicator that the job makes later.
    std::string another_id() { return *ids_.insert(new_id()).first; }

    // Ranks of the same number may be started; processes are counted in the order of their start.
    void start(int rank, Steps steps, std::vector<std::string> variables = {}) {
        start_as(rank, ranks_, std::move(steps), std::move(variables));
    }
    // `prefix`: a command that runs the worker, as `ip netns exec NAME`.
    void start_as(int rank, int ranks, Steps steps, std::vector<std::string> variables = {},
                  std::vector<std::string> prefix = {}) {
        std::vector<std::string> arguments = std::move(prefix);
        arguments.insert(arguments.end(), {FAULT_WORKER, id_, std::to_string(ranks), std::to_string(rank)});
        arguments.insert(arguments.end(), steps.begin(), steps.end());
        variables.push_back(mark());
        processes_.push_back(std::make_unique<Subprocess>(arguments, variables));
    }
    // Waits until the process that was started last leads the rendezvous, or cannot.
    bool started_rendezvous() {
        return eventually(
            [&] { return socket_exists(rendezvous_name(id_)) || contains(processes_.back()->output(), "init "); });
    }
    // A line of its output that begins with `call`, soon or when it has ended; then the last, as answer() does.
    std::string await_answer(int process, const std::string& call) {
        (void)(*this)[process].says(call + " ");
        return answer(process, call);
    }
    Subprocess& operator[](int process) { return *processes_[size_t(process)]; }
    int processes() const { return int(processes_.size()); }
    int ranks_of_job() const { return ranks_; }

    // The process's line that begins with `call`, without it: "0", or "6 rank 1 (pid 7) died...". The last, if there
    // are several.
    std::string answer(int process, const std::string& call) {
        std::string found = "(no line)";
        for (const std::string& line : lines_of((*this)[process].output()))
            if (line.rfind(call + " ", 0) == 0) found = line.substr(call.size() + 1);
        return found;
    }

    // The fields of weftGetLastErrorInfo after the process's last failing `call`.
    struct Error {
        std::string id;
        int rank = -1, peer = -1;
        std::string operation;
        uint64_t sequence = 0;
        bool concerns(int other) const { return rank == other || peer == other; }
    };
    Error error(int process, const std::string& call) {
        Error found;
        std::istringstream line(answer(process, "error." + call));
        line >> found.id >> found.rank >> found.peer >> found.operation >> found.sequence;
        return found;
    }

    // Its first answer, for calls that are made again.
    std::string first_answer(int process, const std::string& call) {
        for (const std::string& line : lines_of((*this)[process].output()))
            if (line.rfind(call + " ", 0) == 0) return line.substr(call.size() + 1);
        return "(no line)";
    }

    // Whether it held no more at the end than when it said `holds` first (worker.cpp).
    bool holds_no_more(int process) {
        std::istringstream first(first_answer(process, "holds")), last(answer(process, "holds"));
        int before = 0, after = 0, count = 0;
        for (; first >> before && last >> after; ++count)
            if (after > before) return false;
        return count == 3;
    }

    // Waits for the process's end, and that it was an orderly one.
    void finish(int process) {
        Subprocess& one = (*this)[process];
        const bool ended = one.ends();
        if (!ended) {
            tell_all();
            one.end();
        }
        const int code = one.wait();
        INFO("process " << process << " said:\n" << one.output() << one.error());
        CHECK(ended);
        CHECK(code == 0);
        ended_.insert(process);
    }
    void kill(int process) {
        (*this)[process].kill(SIGKILL);
        (*this)[process].wait();
        ended_.insert(process);
    }
    // Waits for all that have not ended yet, and looks for what they left.
    void finish() {
        for (int process = 0; process < processes(); ++process)
            if (!ended_.count(process)) finish(process);
        for (const std::string& id : ids_) {
            if (id == "make") continue;
            INFO("a socket named @" << rendezvous_name(id));
            CHECK(eventually([&] { return !socket_exists(rendezvous_name(id)); }));
        }
        CHECK(eventually([&] { return descendants() == 0; }));
        // Another program's file may come and go.
        CHECK(eventually([&] {
            for (const std::string& name : files_of_weft())
                if (!files_.count(name)) return false;
            return true;
        }));
    }

    // The output of all processes so far, for objections.
    std::string everything() {
        std::string text;
        for (int process = 0; process < processes(); ++process)
            text += "process " + std::to_string(process) + " (pid " + std::to_string((*this)[process].pid()) + "):\n" +
                    (*this)[process].output() + (*this)[process].error();
        return text;
    }
    void tell_all() { UNSCOPED_INFO(everything()); }

  private:
    // In the environment of every process of this job, and of their children.
    std::string mark() const { return "FAULTS_JOB=" + rendezvous_name(id_mark_); }
    int descendants() const {
        int count = 0;
        DIR* directory = opendir("/proc");
        while (const dirent* entry = readdir(directory)) {
            if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
            std::ifstream file(std::string("/proc/") + entry->d_name + "/environ");
            std::stringstream text;
            text << file.rdbuf();
            if (text.str().find(mark()) != std::string::npos && !is_gone(atoi(entry->d_name))) ++count;
        }
        closedir(directory);
        return count;
    }

    std::string id_;
    std::string id_mark_ = new_id();
    int ranks_;
    std::set<std::string> ids_;
    std::set<std::string> files_;
    std::set<int> ended_;
    std::vector<std::unique_ptr<Subprocess>> processes_;
};

// The process's `call` failed with the error of this id, and rank `rank` failed.
#define CHECK_JOB_ERROR(job, process, call, wanted_id, wanted_rank)                       \
    do {                                                                                  \
        const ::weft::internal::test::Job::Error weft_error = (job).error(process, call); \
        INFO("process " << process << " said:\n" << (job)[process].output());             \
        CHECK(weft_error.id == (wanted_id));                                              \
        CHECK(weft_error.rank == (wanted_rank));                                          \
    } while (0)

// Whether "8 rank 3 waited 1500 ms for ranks 0 to 2, 5: are all ..." misses the rank.
inline bool misses(const std::string& told, int rank) {
    const size_t begin = told.find(" ms for rank");
    if (told.rfind("8 ", 0) != 0 || begin == std::string::npos) return false;
    std::istringstream words(told.substr(begin, told.find(':', begin) - begin));
    bool to = false;
    int last = -1;
    for (std::string word; words >> word; to = word == "to") {
        if (!isdigit(word[0])) continue;
        const int named = std::stoi(word);
        if (named == rank || (to && last < rank && rank < named)) return true;
        last = named;
    }
    return false;
}

// Checks the output of a killed rank's survivors: each joined and failed, then made a communicator without it. Returns
// the last output of one that did not name the victim (`names_it`).
// During init that may be chance: a late rank may see another one leave that is giving up.
inline std::string check_survivors(Job& job, int victim, bool during_init,
                                   const std::function<bool(const std::string& told)>& names_it) {
    std::string objection;
    for (int rank = 0; rank < job.processes(); ++rank) {
        if (rank == victim) continue;
        INFO("rank " << rank << " said\n" << job[rank].output());
        const bool joined = job.first_answer(rank, "init") == "0";
        const std::string told = job.first_answer(rank, joined ? "loop" : "init");
        // A rank that does not know the victim's rank yet names its process.
        const bool named =
            names_it(told) || told.find("process " + std::to_string(job[victim].pid()) + ",") != std::string::npos;
        if (!named) objection = job.everything();
        CHECK((named || during_init));
        CHECK((joined || during_init));
        if (joined) {
            CHECK(told.rfind("6 ", 0) == 0);
            CHECK(job.first_answer(rank, "async") == "6");
        }
        CHECK(job.answer(rank, "init") == "0");
        CHECK(job.answer(rank, "reduce") == "0");
    }
    return objection;
}

}  // namespace weft::internal::test
