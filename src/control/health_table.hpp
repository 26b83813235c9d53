// health_table.hpp: the health of all ranks, on request. Host 0, or the top of the remaining tree, sends a query down
// the tree of hosts. Reports come up, and the answer goes to all hosts, which write it into the rows of their segments.
#pragma once
#include <functional>
#include <memory>
#include <set>

#include "src/control/tree/tree_links.hpp"

namespace weft::internal {

// Owned by Control, thread-bound to the service thread.
class HealthTable {
  public:
    // `before_report` is called before this host reports its ranks. It marks dead ranks in their rows, and sends the
    // frames that must arrive before the report.
    HealthTable(Service& service, std::shared_ptr<Segment> segment, TreeLinks& tree_links, int host, int hosts,
                std::function<void()> before_report);
    ~HealthTable();

    // Starts a query, at most a few times a second.
    void request();
    // Frames of neighbouring leaders.
    void on_query(uint32_t number) { query(number); }
    void on_report(int host, ByteReader& content);
    void on_end(int host);
    void on_answer(ByteReader& content);
    // `known_us`: the table was true at this time or later; 0: unknown.
    void read_table(ByteReader& content, int64_t known_us = 0);

    // The entries of some ranks.
    ByteWriter table_of(const std::vector<int>& ranks) const;
    // The ranks that only this host reports: its own, and ranks that have left or died behind neighbours that have ended.
    std::vector<int> ours() const;

  private:
    void query(uint32_t number);
    void report();
    void put(int rank, ByteWriter& to) const;
    bool back(int rank);
    bool top() const { return host_ == 0 || tree_links_->ended(HostTree::parent(host_)); }

    std::function<void()> before_report_;
    Service* service_;
    std::shared_ptr<Segment> segment_;
    TreeLinks* tree_links_;
    int host_, hosts_;
    uint32_t number_ = 0;
    bool querying_ = false;
    int64_t queried_us_ = 0, queried_before_us_ = 0;  // when this query came here, and the previous one
    std::set<int> reports_due_;
    ByteWriter gathered_;
    uint32_t gathered_count_ = 0;
    uint64_t timer_ = 0;
    std::vector<bool> backed_;  // blocks of rows of remote ranks that have memory
};

}  // namespace weft::internal
