// hardware_verbs.cpp: reads RDMA devices from libibverbs, which also uses them: devices that /sys hides or that cannot
// be opened, and whether they register device memory by dma-buf.
#include <algorithm>

#include "topology/detect/hardware.hpp"
#include "topology/model/notes.hpp"

namespace weft::internal::topology {

namespace {

// Groups of four digits, as the kernel writes GUIDs and GIDs.
template <size_t bytes>
std::string in_groups(const std::array<uint8_t, bytes>& of) {
    std::string text;
    for (size_t i = 0; i < bytes; i += 2) text += fmt::format("{}{:02x}{:02x}", i == 0 ? "" : ":", of[i], of[i + 1]);
    return text;
}

class VerbsSource {
  public:
    VerbsSource(SystemFiles& sys, Hardware& hardware) : sys_(sys), hardware_(hardware) {}

    void add(const verbs::RdmaDevice& device) {
        name_ = printable(device.name);
        if (!device.refused.empty()) {
            say(hardware_.notes, "{}: it is what {} tells", printable(device.refused), sys_.root());
            return;
        }
        for (const verbs::RdmaPort& port : device.ports) add(device, port);
    }

  private:
    void add(const verbs::RdmaDevice& device, const verbs::RdmaPort& port) {
        auto& all = hardware_.interfaces;
        auto known = std::find_if(all.begin(), all.end(), [&](const Interface& it) {
            return it.rdma && it.port.name == name_ && (it.port.number == port.number || it.port.number == unknown);
        });
        const std::string folder = "class/infiniband/" + name_;
        if (!port.refused.empty()) {
            if (known != all.end()) known->dma_buf = device.dma_buf;
            const bool told = known != all.end() || sys_.exists(folder);
            say(hardware_.notes, "{}: it is {}", printable(port.refused),
                told ? fmt::format("what {} tells", sys_.root()) : "left out");
            return;
        }
        if (!port.active) {
            // /sys has already reported devices that are down.
            if (known == all.end() && sys_.exists(folder)) return;
            say(hardware_.notes, "not up, and left out: port {} of {} ({})", port.number, name_, port.state);
            if (known != all.end()) all.erase(known);
            return;
        }
        if (known == all.end()) {
            Interface made;
            made.rdma = true;
            made.port.name = name_;
            if (sys_.exists(folder + "/device"))
                if (const auto ids = bus_ids_in(sys_.target(folder + "/device")); !ids.empty()) made.busid = ids.back();
            all.push_back(std::move(made));
            known = std::prev(all.end());
        }
        known->dma_buf = device.dma_buf;
        Port& mine = known->port;
        mine.number = port.number;
        if (mine.speed == unknown) mine.speed = port.mbps;
        if (mine.link_layer.empty()) mine.link_layer = port.link_layer;
        if (mine.guid.empty()) mine.guid = guid_of(in_groups(device.guid));
        if (!mine.gid.empty()) return;
        BestGid best;
        for (const verbs::Gid& gid : port.gids) best.offer(in_groups(gid.bytes), gid.roce_v2);
        mine.gid = best.text();
    }

    SystemFiles& sys_;
    Hardware& hardware_;
    std::string name_;
};

}  // namespace

void add_verbs(const std::vector<verbs::RdmaDevice>& devices, SystemFiles& sys, Hardware& hardware) {
    VerbsSource source(sys, hardware);
    for (const verbs::RdmaDevice& device : devices) source.add(device);
}

}  // namespace weft::internal::topology
