// spread_job.hpp: a job whose ranks believe to be on several hosts (WEFT_HOSTID). They communicate over TCP on one
// machine without privileges. The processes' output is read as in tests/faults.
#pragma once
#include "tests/faults/job.hpp"

namespace weft::internal::test {

// Ranks side by side, as many on each host: ranks 0 and 1 on node0, 2 and 3 on node1.
class SpreadJob : public Job {
  public:
    SpreadJob(int hosts, int ranks_per_host) : Job(hosts * ranks_per_host), per_host_(ranks_per_host) {}

    int ranks() const { return ranks_of_job(); }
    int host_of(int rank) const { return rank / per_host_; }
    std::string host_name(int rank) const { return "node" + std::to_string(host_of(rank)); }

    void start(int rank, Steps steps, std::vector<std::string> variables = {}) {
        variables.push_back("WEFT_HOSTID=" + host_name(rank));
        Job::start(rank, std::move(steps), std::move(variables));
    }
    // The process that leads its host: the first that came there. Processes are ranks; they log at INFO.
    int leader_of(int host) {
        for (int rank = host * per_host_; rank < (host + 1) * per_host_; ++rank)
            if (contains((*this)[rank].error(), "this process leads the rendezvous")) return rank;
        FAIL("nobody leads host " << host);
        return -1;
    }
    std::string pid_text(int rank) { return "(pid " + std::to_string((*this)[rank].pid()); }
    // Whether the error names the rank, or its host and the ranks there.
    bool names(const std::string& sentence, int rank) {
        return contains(sentence, "rank " + std::to_string(rank) + " " + pid_text(rank)) ||
               contains(sentence, "host " + host_name(rank)) || contains(sentence, host_name(rank) + " (");
    }

  private:
    int per_host_;
};

// Where leaders are looked for: enough log to see them.
inline const std::vector<std::string> telling{"WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=INIT"};

inline std::vector<std::string> with(std::vector<std::string> variables, const std::vector<std::string>& more) {
    variables.insert(variables.end(), more.begin(), more.end());
    return variables;
}

}  // namespace weft::internal::test
