// join_entries.hpp: the out-of-band entries by which the ranks of a host, and then the hosts, make a domain. An entry stays
// in the writer's own heap, where all ranks of its host read it. If all hosts read it, it is also sent to each of the
// others. Thread-bound to the rank.
#pragma once
#include <string>

#include "src/gpu/domain/domain_ranks.hpp"
#include "src/gpu/kernels/join_report.hpp"

namespace weft::internal::cuda {

// How ranks of different processes share memory, in the order of trials. The last two replace device memory by host
// memory: of the ranks that not all others reach, and of all ranks.
enum class ShareMethod { ipc, descriptors, some_host, host };

class JoinEntries {
  public:
    // The entries of each stage. A join report has several. Those from `agreed` on do not depend on the method.
    enum Stage : int {
        exports,
        reached = 16,
        verified = 32,
        agreed = 48,
        of_each_method = 64,
        multicast_object = 1024,
        multicast_added = 1040,
        multicast_bound = 1056,
        multicast_mapped = 1072,
        fabric_handle = 1088,
        fabric_made = 1104,
        fabric_reached = 1120,
        fabric_verified = 1136,
    };
    enum class Readers { own_host, all_hosts };
    // `ranks` must outlive this object.
    explicit JoinEntries(const DomainRanks& ranks, Readers readers = Readers::own_host);

    // The ranks that post entries: those of this host, or all.
    const std::vector<int>& posting() const { return posting_; }

    // Entries of one method are apart from those of another.
    ShareMethod method() const { return method_; }
    void set_method(ShareMethod method) { method_ = method; }

    Status post(int stage, const void* value, size_t bytes);
    Status post_report(int stage, const Status& status, bool root, const RankBits& unreached);
    const std::byte* find(int peer, int stage) const;  // null: not posted yet
    // Whether all posting ranks have posted their entry of the stage.
    bool all_have_put(int stage) const;

    // The first obstacle in rank order that a stage has reported. All ranks read the same entries.
    struct Obstacle {
        std::string text;   // empty: no obstacle
        bool root = false;  // a rank could not export anything
    };
    Obstacle first_obstacle(int stage) const;
    // The ranks whose memory some rank does not reach, as a stage has reported; all ranks if the obstacle is
    // another one.
    RankBits unreached_in(int stage) const;

    // The host's first rank reports the result, which is equal on all ranks of the host.
    Status report_to_hosts(const std::string& obstacle);
    // Whether all hosts have reported. Then `obstacle` becomes that of the first host that has one.
    bool hosts_agree(std::string& obstacle) const;

  private:
    uint64_t key(int stage) const;

    const DomainRanks& ranks_;
    Readers readers_;
    std::vector<int> posting_;
    ShareMethod method_ = ShareMethod::ipc;
};

}  // namespace weft::internal::cuda
