// health_table.hpp: where everyone is: on request host 0, or who is the top of what is left of the tree of hosts, asks down
// the tree, reports come up, and the table goes to all, who write it into the rows of their segments. Thread-bound to
// the service thread.
#pragma once
#include <functional>
#include <memory>
#include <set>

#include "src/control/tree_links.hpp"

namespace weft::internal {

class HealthTable {
  public:
    // `look_first` is called before this host reports its ranks. It marks the dead ones in their rows, and sends the news
    // that must arrive before the report.
    HealthTable(Service& service, std::shared_ptr<Segment> segment, TreeLinks& tree_links, int host, int hosts,
                std::function<void()> look_first);
    ~HealthTable();

    // Somebody wants to know: a few times a second at most it is found out.
    void request();
    // What neighbouring leaders sent.
    void on_query(uint32_t number) { query(number); }
    void on_report(int host, ByteReader& content);
    void on_end(int host);
    void on_answer(ByteReader& content);
    // `known_us`: what it says was so then or later; 0: not known.
    void read_table(ByteReader& content, int64_t known_us = 0);

    // Tables: of some ranks.
    ByteWriter table_of(const std::vector<int>& ranks) const;
    // Whom nobody else tells of: the ranks of this host, and those that have left or died on hosts of which none is in
    // the way any more.
    std::vector<int> ours() const;

  private:
    void query(uint32_t number);
    void report();
    void put(int rank, ByteWriter& to) const;
    bool back(int rank);
    bool top() const { return host_ == 0 || tree_links_->ended(HostTree::parent(host_)); }

    std::function<void()> look_first_;
    Service* service_;
    std::shared_ptr<Segment> segment_;
    TreeLinks* tree_links_;
    int host_, hosts_;
    uint32_t number_ = 0;
    bool querying_ = false;
    int64_t queried_us_ = 0, queried_before_us_ = 0;  // when this question came here, and the one before
    std::set<int> reports_due_;
    ByteWriter gathered_;
    uint32_t gathered_count_ = 0;
    uint64_t timer_ = 0;
    std::vector<bool> backed_;  // rows of other hosts' ranks that have memory, some at a time
};

}  // namespace weft::internal
