// shared_memory_test.cpp: nameless segments. A write through one mapping is read through another; a segment that cannot
// be made or trusted is an error.
#include "src/base/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {
namespace {

Fd copy_of(int fd) { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

bool all_zero(const std::byte* data, size_t bytes) {
    const std::vector<std::byte> zeros(bytes);
    return memcmp(data, zeros.data(), bytes) == 0;
}

}  // namespace

TEST_CASE("two mappings of a segment share its bytes", "[shared_memory]") {
    auto first = SharedMemory::create("weft-test", 5 * page_bytes());
    REQUIRE(first.ok());
    CHECK(first->bytes() == 5 * page_bytes());
    auto second = SharedMemory::map(copy_of(first->fd()));
    REQUIRE(second.ok());
    CHECK(second->bytes() == first->bytes());
    CHECK(second->inode() == first->inode());
    CHECK(second->data() != first->data());
    REQUIRE(first->back(0, first->bytes()).ok());
    first->data()[4 * page_bytes() + 17] = std::byte{42};
    CHECK(second->data()[4 * page_bytes() + 17] == std::byte{42});
}

TEST_CASE("a process with the descriptor cannot resize a segment", "[shared_memory]") {
    auto memory = SharedMemory::create("weft-test", 2 * page_bytes());
    REQUIRE(memory.ok());
    CHECK(ftruncate(memory->fd(), off_t(page_bytes())) != 0);
    CHECK(ftruncate(memory->fd(), off_t(3 * page_bytes())) != 0);
}

TEST_CASE("backed memory is zero, keeps its content when backed again, and is zero after its release",
          "[shared_memory]") {
    auto memory = SharedMemory::create("weft-test", 8 * page_bytes());
    REQUIRE(memory.ok());
    REQUIRE(memory->back(page_bytes() + 100, 3 * page_bytes()).ok());
    CHECK(all_zero(memory->data() + page_bytes(), 4 * page_bytes()));
    memset(memory->data() + page_bytes(), 7, 4 * page_bytes());
    REQUIRE(memory->back(0, 8 * page_bytes()).ok());
    CHECK(memory->data()[2 * page_bytes()] == std::byte{7});
    // Only pages that lie wholly inside go.
    memory->release(page_bytes() + 1, 3 * page_bytes());
    CHECK(memory->data()[2 * page_bytes() - 1] == std::byte{7});
    CHECK(all_zero(memory->data() + 2 * page_bytes(), 2 * page_bytes()));
    CHECK(memory->data()[4 * page_bytes()] == std::byte{7});
}

TEST_CASE("a segment knows which addresses are its own", "[shared_memory]") {
    auto memory = SharedMemory::create("weft-test", 2 * page_bytes());
    REQUIRE(memory.ok());
    const std::byte *begin = memory->data(), *end = begin + memory->bytes();
    CHECK(memory->contains(begin, memory->bytes()));
    CHECK(!memory->contains(begin, memory->bytes() + 1));
    CHECK(memory->contains(end, 0));
    CHECK(memory->contains(end - 1, 1));
    CHECK(!memory->contains(end - 1, 2));
    CHECK(!memory->contains(begin + 1, ~size_t(0)));
    CHECK(!memory->contains(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(begin) - 1), 1));
}

TEST_CASE("a segment moves with its mapping", "[shared_memory]") {
    auto made = SharedMemory::create("weft-test", page_bytes());
    REQUIRE(made.ok());
    std::byte* const data = made->data();
    SharedMemory moved(std::move(*made));
    CHECK(moved.data() == data);
    moved.data()[0] = std::byte{1};
    SharedMemory assigned;
    assigned = std::move(moved);
    CHECK(assigned.data()[0] == std::byte{1});
}

TEST_CASE("a descriptor that is not a sealed segment is refused", "[shared_memory]") {
    Fd unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(ftruncate(unsealed.number(), off_t(page_bytes())) == 0);
    const auto first = SharedMemory::map(std::move(unsealed));
    REQUIRE(!first.ok());
    CHECK_ERROR(first, "system.call");
    CHECK(!SharedMemory::map(Fd(open("/dev/null", O_RDWR | O_CLOEXEC))).ok());
    CHECK(!SharedMemory::map(Fd()).ok());
}

TEST_CASE("memory is released and backed although the program has closed the segment, and its file is untouched",
          "[shared_memory]") {
    auto memory = SharedMemory::create("weft-test", 16 * page_bytes());
    REQUIRE(memory.ok());
    REQUIRE(memory->back(0, 4 * page_bytes()).ok());
    memset(memory->data(), 1, 4 * page_bytes());
    // The program's file has the segment's number.
    const int file = memfd_create("program", MFD_CLOEXEC);
    const std::string text(4 * page_bytes(), 'x');
    REQUIRE(write(file, text.data(), text.size()) == ssize_t(text.size()));
    REQUIRE(dup2(file, memory->fd()) == memory->fd());
    CHECK(!memory->descriptor_intact());
    memory->release(0, 4 * page_bytes());
    CHECK(memory->data()[0] == std::byte{0});
    // A kernel before 5.14 can only refuse.
    const Status backed = memory->back(4 * page_bytes(), 4 * page_bytes());
    CHECK((backed.ok() || backed.code() == weftInvalidUsage));
    const int number = memory->fd();
    memory = SharedMemory();
    std::string found(text.size() + 1, ' ');
    CHECK(pread(number, found.data(), found.size(), 0) == ssize_t(text.size()));
    CHECK(found.substr(0, text.size()) == text);
    close(number);
    close(file);
}

TEST_CASE("a segment beyond the file size limit is a sentence that names the limit, not a signal", "[shared_memory]") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit tight = before;
    tight.rlim_cur = page_bytes();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const auto refused = SharedMemory::create("weft-test", 16 * page_bytes());
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    REQUIRE(!refused.ok());
    CHECK_ERROR(refused, "shm.address-space");
    CHECK(SharedMemory::create("weft-test", 16 * page_bytes()).ok());
}

TEST_CASE("more than any file may be is a sentence", "[shared_memory]") {
    const auto refused = SharedMemory::create("weft-test", size_t(1) << 62);
    REQUIRE(!refused.ok());
    CHECK_ERROR(refused, "shm.address-space");
}

}  // namespace weft::internal::test
