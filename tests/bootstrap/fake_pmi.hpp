// fake_pmi.hpp: a launcher's PMI server under test, versions 1 and 2, over a socket pair for each rank as Hydra has it.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>

#include "tests/bootstrap/fake_server.hpp"

namespace weft::internal::test {

class FakePmi {
  public:
    // `versions`: those it speaks. `most`: the longest value it takes.
    FakePmi(int ranks, std::vector<int> versions, int most = 1024)
        : ranks_(ranks),
          versions_(std::move(versions)),
          most_(most),
          handlers_([this](const Line& line) { serve(line); }) {
        for (int rank = 0; rank < ranks; ++rank) {
            int ends[2];
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no sockets");
            clients_.emplace_back(ends[0]);
            handlers_.take(Fd(ends[1]));
        }
    }
    ~FakePmi() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
    }
    // PMI_FD of this rank.
    int descriptor(int rank) const { return clients_[size_t(rank)].number(); }
    std::vector<std::string> requests() {
        std::lock_guard lock(mutex_);
        return requests_;
    }

  private:
    static std::string field(const std::string& request, const std::string& name, char separator) {
        const size_t at = request.find(name + "=");
        if (at == std::string::npos) return {};
        const size_t begin = at + name.size() + 1;
        return request.substr(begin, request.find(separator, begin) - begin);
    }
    bool await_all() {
        std::unique_lock lock(mutex_);
        const int round = arrived_++ / ranks_;
        changed_.notify_all();
        changed_.wait(lock, [&] { return over_ || arrived_ >= (round + 1) * ranks_; });
        return !over_;
    }
    void serve(const Line& line) {
        while (const auto request = line.line()) {
            {
                std::lock_guard lock(mutex_);
                requests_.push_back(*request);
            }
            const std::string command = field(*request, "cmd", ' '), key = field(*request, "key", ' ');
            if (command == "init") {
                const int version = std::stoi(field(*request, "pmi_version", ' '));
                // Slurm's server insists on a number here and hangs up otherwise.
                if (field(*request, "pmi_subversion", ' ') != (version == 1 ? "1" : "0")) return;
                const bool known = std::count(versions_.begin(), versions_.end(), version) != 0;
                line.send("cmd=response_to_init pmi_version=" + std::to_string(known ? version : versions_[0]) +
                          " pmi_subversion=0 rc=" + (known ? "0" : "-1") + "\n");
                if (known && version == 2) return serve_frames(line);
            } else if (command == "get_maxes") {
                line.send("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(most_) + "\n");
            } else if (command == "get_my_kvsname") {
                line.send("cmd=my_kvsname kvsname=kvs_1_0\n");
            } else if (command == "put") {
                put(field(*request, "kvsname", ' ') + key, field(*request, "value", ' '));
                line.send("cmd=put_result rc=0 msg=success\n");
            } else if (command == "get") {
                const auto value = get(field(*request, "kvsname", ' ') + key);
                line.send(value ? "cmd=get_result rc=0 msg=success value=" + *value + "\n"
                                : "cmd=get_result rc=-1 msg=key_not_found\n");
            } else if (command == "barrier_in") {
                if (!await_all()) return;
                line.send("cmd=barrier_out\n");
            } else if (command == "finalize") {
                line.send("cmd=finalize_ack\n");
            } else {
                return;
            }
        }
    }
    void serve_frames(const Line& line) {
        const auto answer = [&](const std::string& text) {
            std::string size = std::to_string(text.size());
            size.resize(6, ' ');
            line.send(size + text);
        };
        while (const auto head = line.bytes(6)) {
            const auto request = line.bytes(std::stoul(*head));
            if (!request) return;
            {
                std::lock_guard lock(mutex_);
                requests_.push_back(*request);
            }
            const std::string command = field(*request, "cmd", ';'), key = field(*request, "key", ';');
            if (command == "fullinit") {
                answer("cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=" + field(*request, "pmirank", ';') +
                       ";size=" + std::to_string(ranks_) + ";appnum=0;debugged=FALSE;pmiverbose=FALSE;rc=0;");
            } else if (command == "kvs-put") {
                put(key, field(*request, "value", ';'));
                answer("cmd=kvs-put-response;rc=0;");
            } else if (command == "kvs-fence") {
                if (!await_all()) return;
                answer("cmd=kvs-fence-response;rc=0;");
            } else if (command == "kvs-get") {
                const auto value = get(key);
                answer(value ? "cmd=kvs-get-response;flag=TRUE;value=" + *value + ";rc=0;"
                             : "cmd=kvs-get-response;flag=FALSE;rc=1;errmsg=none;");
            } else {
                return;
            }
        }
    }
    void put(const std::string& key, const std::string& value) {
        std::lock_guard lock(mutex_);
        values_[key] = value;
    }
    std::optional<std::string> get(const std::string& key) {
        std::lock_guard lock(mutex_);
        const auto found = values_.find(key);
        return found == values_.end() ? std::nullopt : std::optional(found->second);
    }

    int ranks_;
    std::vector<int> versions_;
    int most_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::string, std::string> values_;
    std::vector<std::string> requests_;
    int arrived_ = 0;
    bool over_ = false;
    std::vector<Fd> clients_;
    Handlers handlers_;  // last, so that they end first
};

}  // namespace weft::internal::test
