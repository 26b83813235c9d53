// check_in_model.hpp: the frames of a rendezvous between hosts, counted without connections. The places and contents are
// those of Roster; only the rules of who sends what are repeated here. For hosts whose ranks have all joined when they
// check in, and that all reach their parents.
#pragma once
#include <vector>

#include "src/rendezvous/roster.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {

class CheckInModel {
  public:
    // In the order of their check-in. Their machines are described by `machine.text`, which may be empty.
    CheckInModel(const std::vector<HostEntry>& hosts, const net::Secret& secret) : traffic_(hosts.size() + 1) {
        for (size_t place = 0; place < traffic_.size(); ++place) traffic_[place].place = int(place);
        for (HostEntry host : hosts) check_in(std::move(host), secret);
        if (!roster_.complete()) FAIL("the hosts of the model lack ranks");
        ByteWriter table;
        roster_.rank_table().write(table);
        table_bytes_ = table.bytes().size();
        for (int place = 1; place <= this->hosts(); ++place) send(parent(place), place, table_bytes_);
    }
    int hosts() const { return roster_.hosts(); }
    const CheckInTraffic& at(int place) const { return traffic_[size_t(place)]; }
    size_t table_bytes() const { return table_bytes_; }
    // Of the host's check-in, without its machine's text.
    size_t entry_bytes(int place) const { return entry_bytes_[size_t(place) - 1]; }
    // How many leaders pass the rank table on before the host has it.
    int depth(int place) const { return place == 0 ? 0 : 1 + depth(parent(place)); }

  private:
    int parent(int place) const { return CheckInTree::parent(place); }
    void connect(int one, int other) {
        ++traffic_[size_t(one)].connections;
        ++traffic_[size_t(other)].connections;
    }
    void send(int from, int to, size_t bytes) {
        traffic_[size_t(from)].sent(CheckInFrame::host, bytes);
        traffic_[size_t(to)].received(CheckInFrame::host, bytes);
    }
    void check_in(HostEntry host, const net::Secret& secret) {
        const std::string text = host.machine.text;
        if (!text.empty()) host.machine_digest = secret.prove(text.data(), text.size());
        ByteWriter entry;
        host.write(entry);
        for (const RankEntry& member : host.members)
            if (member.rank == 0) {
                entry.put(AgreedOptions{});
                entry.put_bytes("");
                entry.put_failure(std::optional<Failure>());
            }
        entry_bytes_.push_back(entry.bytes().size());
        ByteReader content(entry.bytes().data(), entry.bytes().size());
        const auto place = roster_.add_host(content);
        if (!place) FAIL(place.status().sentence());
        connect(0, *place);
        send(*place, 0, entry.bytes().size());
        const Placement placement = roster_.placement(*place);
        ByteWriter answer;
        placement.write(answer);
        send(0, *place, answer.bytes().size());
        if (placement.wants_machine) {
            ByteWriter described;
            described.put_bytes(text);
            send(*place, 0, described.bytes().size());
            roster_.add_machine(host.machine_digest, text);
        }
        if (placement.parent == 0) return;
        connect(placement.parent, *place);
        send(*place, placement.parent, 0);  // attach
        send(placement.parent, *place, 0);  // taken
        send(*place, 0, 0);                 // attached
    }

    Roster roster_;
    std::vector<CheckInTraffic> traffic_;  // by place
    std::vector<size_t> entry_bytes_;
    size_t table_bytes_ = 0;
};

}  // namespace weft::internal::test
