// network.hpp: network namespaces as hosts. Each has one interface on a bridge in a separate namespace, so that the
// machine's network is not touched. Needs root and the command `ip`. The names are always removed: the next test
// removes those of a killed one.
#pragma once
#include <unistd.h>

#include "tests/hosts/spread_job.hpp"

namespace weft::internal::test {

// The command's output; fails the test where it fails.
inline std::string command(std::vector<std::string> words) {
    std::string text;
    for (const std::string& word : words) text += word + " ";
    const ProcessResult outcome = run(std::move(words));
    if (outcome.status != 0) FAIL(text << "failed: " << outcome.output << outcome.error);
    return outcome.output;
}

class Network {
  public:
    // Why there can be none here; empty: it can.
    static std::string obstacle() {
        if (geteuid() != 0) return "needs root, for network namespaces";
        for (const char* tool : {"ip", "ss"}) {
            const ProcessResult where = run({"sh", "-c", std::string("command -v ") + tool});
            if (where.status != 0) return std::string("needs the command `") + tool + "` (package iproute2)";
        }
        const std::string name = "weft_probe_" + std::to_string(getpid());
        const ProcessResult made = run({"ip", "netns", "add", name});
        if (made.status != 0) return "may make no network namespaces: " + made.error;
        (void)run({"ip", "netns", "delete", name});
        return "";
    }

    // `twin`: an address that every host has, as on a BMC's interface, before the one that leads to the others.
    explicit Network(int hosts, const std::string& twin = "")
        : hosts_(hosts), name_("weft" + std::to_string(getpid()) + "_" + std::to_string(next()++)) {
        clear_up();
        make(bridge());
        command({"ip", "-n", bridge(), "link", "add", "bridge0", "type", "bridge"});
        command({"ip", "-n", bridge(), "link", "set", "bridge0", "up"});
        for (int host = 0; host < hosts; ++host) {
            make(host_name(host));
            if (!twin.empty()) {
                command({"ip", "-n", host_name(host), "link", "add", "usb0", "type", "veth", "peer", "name", "bmc"});
                command({"ip", "-n", host_name(host), "address", "add", twin + "/24", "dev", "usb0"});
                for (const char* end : {"usb0", "bmc"})
                    command({"ip", "-n", host_name(host), "link", "set", end, "up"});
            }
            const std::string port = this->port(host);
            command({"ip", "-n", host_name(host), "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns",
                     bridge()});
            command({"ip", "-n", bridge(), "link", "set", port, "master", "bridge0"});
            command({"ip", "-n", bridge(), "link", "set", port, "up"});
            command({"ip", "-n", host_name(host), "address", "add", address(host) + "/24", "dev", "eth0"});
            command({"ip", "-n", host_name(host), "link", "set", "lo", "up"});
            command({"ip", "-n", host_name(host), "link", "set", "eth0", "up"});
        }
        // Until it runs the kernel's list of addresses has the other interface alone.
        for (int host = 0; host < hosts && !twin.empty(); ++host)
            REQUIRE(eventually([&] {
                return command({"ip", "-n", host_name(host), "link", "show", "eth0"}).find("state UP") !=
                       std::string::npos;
            }));
    }
    Network(const Network&) = delete;
    Network& operator=(const Network&) = delete;
    ~Network() {
        for (const std::string& name : made_) (void)run({"ip", "netns", "delete", name});
    }

    int hosts() const { return hosts_; }
    std::string host_name(int host) const { return name_ + "_host" + std::to_string(host); }
    static std::string address(int host) { return "10.99.0." + std::to_string(host + 1); }
    // The prefix of a command that runs there.
    std::vector<std::string> inside(int host) const { return {"ip", "netns", "exec", host_name(host)}; }
    std::string on(int host, std::vector<std::string> words) const {
        std::vector<std::string> all = inside(host);
        all.insert(all.end(), words.begin(), words.end());
        return command(std::move(all));
    }
    // A host's link: its port of the bridge.
    void cut(int host) { command({"ip", "-n", bridge(), "link", "set", port(host), "down"}); }
    void mend(int host) { command({"ip", "-n", bridge(), "link", "set", port(host), "up"}); }
    // Nothing reaches the host or comes from it, and no interface shows that.
    void swallow(int host) { command({"ip", "-n", bridge(), "link", "set", port(host), "nomaster"}); }
    void spit_out(int host) { command({"ip", "-n", bridge(), "link", "set", port(host), "master", "bridge0"}); }
    // Interfaces take packets that are dropped without a word on the way to the last host; small ones pass. It is the
    // second hop that drops them: of the first the sender's kernel would know.
    void lose_large_packets() {
        const auto set = [&](std::vector<std::string> words) {
            words.insert(words.begin(), {"ip", "-n", bridge(), "link"});
            command(std::move(words));
        };
        set({"add", "bridge1", "type", "bridge"});
        set({"add", "narrow0", "type", "veth", "peer", "name", "narrow1"});
        for (int end = 0; end < 2; ++end) {
            set({"set", "narrow" + std::to_string(end), "master", "bridge" + std::to_string(end)});
            set({"set", "narrow" + std::to_string(end), "up"});
        }
        set({"set", "bridge1", "up"});
        set({"set", port(hosts_ - 1), "master", "bridge1"});
        for (int host = 0; host < hosts_; ++host) {
            set({"set", port(host), "mtu", "9000"});
            on(host, {"ip", "link", "set", "eth0", "mtu", "9000", "gso_max_segs", "1"});
        }
    }
    // The kernel there ends its TCP connections with another host, and informs the other end.
    void reset(int host, int other) { on(host, {"ss", "-K", "dst", address(other)}); }

  private:
    // Namespaces of tests that were killed: their names begin with the number of a process that is no more.
    static void clear_up() {
        for (const std::string& line : lines_of(command({"ip", "netns", "list"}))) {
            const std::string name = line.substr(0, line.find(' '));
            const pid_t owner = name.rfind("weft", 0) == 0 ? pid_t(atoi(name.c_str() + 4)) : 0;
            if (owner > 0 && is_gone(owner)) (void)run({"ip", "netns", "delete", name});
        }
    }
    static int& next() {
        static int number = 0;
        return number;
    }
    std::string bridge() const { return name_ + "_bridge"; }
    static std::string port(int host) { return "port" + std::to_string(host); }
    void make(const std::string& name) {
        command({"ip", "netns", "add", name});
        made_.push_back(name);
    }

    int hosts_;
    std::string name_;
    std::vector<std::string> made_;
};

// Ranks in namespaces, evenly. Rank 0 makes the id where it is, and the others get it.
class NetworkJob : public SpreadJob {
  public:
    NetworkJob(Network& network, int ranks_per_host) : SpreadJob(network.hosts(), ranks_per_host), network_(&network) {
        use_id("make");
    }
    // Rank 0 first. Of a step `id=later` the second id that rank 0 has made.
    void start(int rank, Steps steps, std::vector<std::string> variables = {}) {
        // Namespaces do not change the host's name, by which errors identify hosts.
        variables.push_back("WEFT_HOSTID=" + host_name(rank));
        if (rank == 0) steps.insert(steps.begin(), "make_later");
        for (std::string& step : steps)
            if (rank > 0 && step == "id=later") step = "id=" + later_;
        start_as(rank, ranks(), std::move(steps), std::move(variables), network_->inside(host_of(rank)));
        if (rank > 0 || id() != "make") return;
        REQUIRE(eventually([&] { return answer(0, "later").size() == 256; }));
        use_id(answer(0, "id"));
        later_ = answer(0, "later");
    }

  private:
    Network* network_;
    std::string later_;
};

// For the beginning of a test case.
#define NEEDS_A_NETWORK()                                            \
    if (const std::string why = Network::obstacle(); !why.empty()) { \
        WARN("skipped: " << why);                                    \
        return;                                                      \
    }

}  // namespace weft::internal::test
