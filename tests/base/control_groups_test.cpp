// control_groups_test.cpp: limits of memory as in /proc and /sys.
#include "src/base/control_groups.hpp"

#include <fstream>

#include "tests/catch.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {
namespace {

constexpr uint64_t mib = uint64_t(1) << 20;

class FakeSystem {
  public:
    void file(const std::string& name, const std::string& text) const {
        const std::filesystem::path path = folder_.path / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text << "\n";
    }
    // The bytes of all rooms, the host's first.
    std::vector<uint64_t> rooms() const {
        std::vector<uint64_t> bytes;
        for (const MemoryHeadroom& room : memory_headroom(folder_.path)) {
            CHECK((room.group == 0) == (bytes.empty() && has_host));
            bytes.push_back(room.bytes);
        }
        return bytes;
    }
    bool has_host = false;

  private:
    Folder folder_;
};

}  // namespace

TEST_CASE("an unknown control group has no limit", "[control_groups]") {
    FakeSystem fake;
    CHECK(fake.rooms().empty());
    fake.file("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 100 kB\nMemAvailable: 2048 kB\nBuffers: 5 kB");
    fake.has_host = true;
    CHECK(fake.rooms() == std::vector<uint64_t>{2 * mib});
}

TEST_CASE("every group of version 2 with a limit counts, minus used memory that cannot be dropped",
          "[control_groups]") {
    FakeSystem fake;
    fake.file("proc/self/cgroup", "0::/pods/one/");
    fake.file("sys/fs/cgroup/pods/one/memory.max", "max");
    fake.file("sys/fs/cgroup/pods/one/memory.current", "1000");
    fake.file("sys/fs/cgroup/pods/memory.max", std::to_string(100 * mib));
    CHECK(fake.rooms().empty());  // what is used is unknown
    fake.file("sys/fs/cgroup/pods/memory.current", std::to_string(40 * mib));
    CHECK(fake.rooms() == std::vector<uint64_t>{60 * mib});
    fake.file("sys/fs/cgroup/pods/memory.stat",
              "anon 5\nfile 8\ninactive_file " + std::to_string(8 * mib) + "\nactive_file " + std::to_string(2 * mib));
    CHECK(fake.rooms() == std::vector<uint64_t>{70 * mib});
    fake.file("sys/fs/cgroup/pods/one/memory.max", std::to_string(50 * mib));
    CHECK(fake.rooms() == std::vector<uint64_t>{50 * mib - 1000, 70 * mib});
    fake.file("sys/fs/cgroup/pods/memory.current", std::to_string(200 * mib));
    CHECK(fake.rooms() == std::vector<uint64_t>{50 * mib - 1000, 0});
    // A container sees its own group as the root, also without /proc/self/cgroup.
    FakeSystem inside;
    inside.file("sys/fs/cgroup/memory.max", std::to_string(10 * mib));
    inside.file("sys/fs/cgroup/memory.current", "0");
    CHECK(inside.rooms() == std::vector<uint64_t>{10 * mib});
}

TEST_CASE("version 1's limit is read where its tree is mounted", "[control_groups]") {
    FakeSystem fake;
    fake.file("proc/self/cgroup", "5:memory:/docker/77\n4:cpu,cpuacct:/docker/77\n0::/");
    fake.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    fake.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "5");
    CHECK(fake.rooms().empty());
    fake.file("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(100 * mib));
    fake.file("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(30 * mib));
    fake.file("sys/fs/cgroup/memory/memory.stat",
              "inactive_file 7\ntotal_inactive_file " + std::to_string(mib) + "\ntotal_active_file 0");
    CHECK(fake.rooms() == std::vector<uint64_t>{71 * mib});
    fake.file("sys/fs/cgroup/memory/docker/77/memory.limit_in_bytes", std::to_string(20 * mib));
    fake.file("sys/fs/cgroup/memory/docker/77/memory.usage_in_bytes", "0");
    CHECK(fake.rooms() == std::vector<uint64_t>{20 * mib, 71 * mib});
    fake.file("proc/self/cgroup", "5:memory:/../../elsewhere");
    CHECK(fake.rooms().empty());
}

}  // namespace weft::internal::test
