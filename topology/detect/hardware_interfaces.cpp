// hardware_interfaces.cpp: reads network ports from /sys: RDMA devices and interfaces of the operating system.
#include <algorithm>
#include <charconv>

#include "topology/detect/hardware.hpp"

namespace weft::internal::topology {

namespace {

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
}

// "200 Gb/sec (4X HDR)" in Mb/s.
int speed_of(const std::string& rate) {
    double gbps = 0;
    const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), gbps);
    const bool known = error == std::errc() && rate.compare(size_t(end - rate.data()), 7, " Gb/sec") == 0;
    return known && gbps > 0 && gbps < 100'000 ? int(gbps * 1000) : unknown;
}

class InterfaceSource {
  public:
    InterfaceSource(SystemFiles& sys, Hardware& hardware) : sys_(sys), hardware_(hardware) {}
    void add() {
        // hwloc's list of interfaces is shorter.
        if (sys_.exists("class/net")) hardware_.interfaces.clear();
        for (const std::string& name : sys_.names("class/infiniband")) add_rdma(name);
        for (const std::string& name : sys_.names("class/net")) add_network(name);
        // A container often has no others.
        const bool any = std::any_of(hardware_.interfaces.begin(), hardware_.interfaces.end(),
                                     [](const Interface& it) { return !it.rdma; });
        if (!any) std::move(virtual_.begin(), virtual_.end(), std::back_inserter(hardware_.interfaces));
        if (!down_.empty()) hardware_.notes.push_back(fmt::format("not up, and left out: {}", join(down_)));
    }

  private:
    std::string busid_of(const std::string& device_link) {
        const auto ids = bus_ids_in(sys_.target(device_link));
        return ids.empty() ? std::string() : ids.back();
    }

    void add_rdma(const std::string& name) {
        const std::string folder = "class/infiniband/" + name + '/';
        std::string guid = guid_of(sys_.text(folder + "sys_image_guid").value_or(""));
        if (guid.empty()) guid = guid_of(sys_.text(folder + "node_guid").value_or(""));
        const std::string busid = busid_of(folder + "device");
        for (const std::string& number : sys_.names(folder + "ports")) {
            const std::string port = folder + "ports/" + number + '/';
            // "4: ACTIVE"
            if (const auto state = sys_.text(port + "state"); state && state->compare(0, 2, "4:") != 0) {
                down_.push_back(fmt::format("port {} of {} ({})", number, name, *state));
                continue;
            }
            Interface made;
            made.rdma = true;
            made.busid = busid;
            made.port.name = printable(name);
            made.port.guid = guid;
            std::from_chars(number.data(), number.data() + number.size(), made.port.number);
            made.port.speed = speed_of(sys_.text(port + "rate").value_or(""));
            made.port.link_layer = sys_.text(port + "link_layer").value_or("");
            made.port.gid = gid_of(port);
            hardware_.interfaces.push_back(std::move(made));
        }
    }
    std::string gid_of(const std::string& port) {
        constexpr int gids_most = 256;
        BestGid best;
        for (int index = 0; index < gids_most; ++index) {
            const auto gid = sys_.text(fmt::format("{}gids/{}", port, index));
            if (!gid) break;
            if (gid->size() <= 64)
                best.offer(*gid, sys_.text(fmt::format("{}gid_attrs/types/{}", port, index)).value_or("") == "RoCE v2");
        }
        return best.text();
    }

    void add_network(const std::string& name) {
        const std::string folder = "class/net/" + name + '/';
        constexpr int ethernet = 1, infiniband = 32;
        const auto type = sys_.number(folder + "type");
        if (type && *type != ethernet && *type != infiniband) return;
        // The representor of a virtual function on a switching NIC, "pf0vf3", is not a port.
        const std::string port_name = sys_.text(folder + "phys_port_name").value_or("");
        if (port_name.find("vf") != std::string::npos || port_name.find("sf") != std::string::npos) return;
        const bool physical = sys_.exists(folder + "device");
        const bool bridge = sys_.exists(folder + "bridge");
        const std::string state = sys_.text(folder + "operstate").value_or("unknown");
        if (state != "up" && state != "unknown") {
            if (physical) down_.push_back(name);
            return;
        }
        Interface made;
        if (physical) made.busid = busid_of(folder + "device");
        made.port.name = printable(name);
        if (const auto number = sys_.number(folder + "dev_port"); number && physical && *number >= 0 && *number < 256)
            made.port.number = int(*number) + 1;
        if (const auto speed = sys_.number(folder + "speed"); speed && *speed > 0 && *speed <= 100'000'000)
            made.port.speed = int(*speed);
        if (physical)
            hardware_.interfaces.push_back(std::move(made));
        else if (!bridge)
            virtual_.push_back(std::move(made));
    }

    SystemFiles& sys_;
    Hardware& hardware_;
    std::vector<Interface> virtual_;
    std::vector<std::string> down_;
};

}  // namespace

std::string guid_of(const std::string& text) {
    std::string digits;
    for (const char letter : text)
        if (letter != ':') digits += letter;
    if (digits.size() != 16 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
    std::string reversed;
    for (size_t i = 16; i > 0; i -= 2) reversed += digits.substr(i - 2, 2);
    const size_t first = reversed.find_first_not_of('0');
    return first == std::string::npos ? "" : "0x" + reversed.substr(first);
}

void BestGid::offer(const std::string& gid, bool roce_v2) {
    if (gid.find_first_not_of("0:") == std::string::npos) return;
    const bool ipv4 = gid.compare(0, 30, "0000:0000:0000:0000:0000:ffff:") == 0;
    const int rank = 1 + 2 * int(roce_v2) + int(ipv4);
    if (rank <= rank_) return;
    best_ = gid;
    rank_ = rank;
}

void add_interfaces(SystemFiles& sys, Hardware& hardware) { InterfaceSource(sys, hardware).add(); }

}  // namespace weft::internal::topology
