// fd_test.cpp: Weft's descriptors lie above 2, files of the program's that have their numbers are left alone, and the
// limit is raised when no descriptor is left.
#include "src/base/fd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "src/base/options.hpp"
#include "src/base/unshared_fd.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

// While it lives the number 0 is free.
class WithoutStdin {
  public:
    WithoutStdin() : saved_(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10)) { close(STDIN_FILENO); }
    ~WithoutStdin() {
        dup2(saved_, STDIN_FILENO);
        close(saved_);
    }

  private:
    int saved_;
};

int file_of(const char* name) { return memfd_create(name, MFD_CLOEXEC); }

off_t size_of(int number) {
    struct stat status {};
    return fstat(number, &status) == 0 ? status.st_size : -1;
}

// As a program does that closes "all" descriptors and opens a file of its own.
void put_own_file_at(int number, int file) {
    close(number);
    REQUIRE(dup2(file, number) == number);
}

}  // namespace

TEST_CASE("descriptors of every kind lie above 2 although 0 is free, and are closed on exec", "[fd]") {
    const Fd listener = Fd::socket(AF_UNIX, SOCK_STREAM), caller = Fd::socket(AF_UNIX, SOCK_STREAM);
    sockaddr_storage name{};
    name.ss_family = AF_UNIX;
    socklen_t bytes = sizeof(sa_family_t);  // the kernel finds a name
    REQUIRE(bind(listener.number(), reinterpret_cast<sockaddr*>(&name), bytes) == 0);
    REQUIRE(listen(listener.number(), 1) == 0);
    bytes = sizeof name;
    REQUIRE(getsockname(listener.number(), reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
    REQUIRE(connect(caller.number(), reinterpret_cast<sockaddr*>(&name), bytes) == 0);
    std::vector<Fd> made;
    {
        const WithoutStdin closed;
        made.push_back(Fd::open("/dev/null", O_RDWR));
        made.push_back(Fd::socket(AF_INET, SOCK_STREAM));
        made.push_back(Fd::accept(listener.number()));
        made.push_back(Fd::memory("weft-test", 0));
        made.push_back(Fd::event());
        made.push_back(Fd::epoll());
        made.push_back(Fd::timer());
        made.push_back(Fd::duplicate(listener.number()));
        made.push_back(Fd::adopt(::open("/dev/null", O_RDONLY)));
    }
    for (const Fd& each : made) {
        CAPTURE(&each - made.data());
        CHECK(each.number() > STDERR_FILENO);
        CHECK((fcntl(each.number(), F_GETFD) & FD_CLOEXEC) != 0);
        CHECK(each.intact());
    }
    CHECK(!Fd::accept(listener.number()));
    CHECK(errno == EAGAIN);
}

TEST_CASE("a number that stands for a file of the program's is neither closed nor written", "[fd]") {
    const int file = file_of("program");
    const std::function<Fd()> makers[] = {[] { return Fd::socket(AF_UNIX, SOCK_STREAM); }, [] { return Fd::event(); },
                                          [] { return Fd::memory("weft-test", 0); }};
    for (const auto& make : makers) {
        Fd mine = make();
        const int number = mine.number();
        put_own_file_at(number, file);
        CHECK(!mine.intact());
        CHECK(!ring_event(mine));
        CHECK(!drain_event(mine));
        mine.reset();
        CHECK(size_of(number) == 0);  // it is open, and empty
        close(number);

        UnsharedFd unshared(make());
        const int other = unshared.number();
        put_own_file_at(other, file);
        unshared = UnsharedFd();
        CHECK(size_of(other) == 0);
        close(other);
    }
    close(file);
    const Fd bell = Fd::event();
    CHECK(!drain_event(bell));
    CHECK(ring_event(bell));
    CHECK(drain_event(bell));
}

TEST_CASE("free standard numbers are held while a library opens files, and then free again", "[fd]") {
    const WithoutStdin closed;
    {
        const StandardNumbers held;
        const Fd opened(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        CHECK(opened.number() > STDERR_FILENO);
        CHECK(write(STDIN_FILENO, "", 1) < 0);
    }
    CHECK(fcntl(STDIN_FILENO, F_GETFD) < 0);
    const int file = file_of("program");  // 0
    CHECK(file == STDIN_FILENO);
    {
        const StandardNumbers held;
        CHECK(size_of(STDIN_FILENO) == 0);
    }
    CHECK(size_of(STDIN_FILENO) == 0);
    close(STDIN_FILENO);
    {
        const StandardNumbers held;
        put_own_file_at(STDIN_FILENO, file_of("program"));
    }
    CHECK(size_of(STDIN_FILENO) == 0);
    close(STDIN_FILENO);
}

// Also with WEFT_RAISE_NOFILE=0 (meson.build).
TEST_CASE("the soft limit of descriptors is raised when none is left, not before, if that is allowed",
          "[fd][descriptors_end]") {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    if (before.rlim_max < 1024) return;
    std::vector<Fd> all;
    all.reserve(200);
    rlimit low{100, before.rlim_max}, filled{}, after{};
    bool made = true, room = false;
    int error = 0;
    // No assertion in here: under UBSan each needs a descriptor.
    setrlimit(RLIMIT_NOFILE, &low);
    for (int number = 0; number < 97; number = all.back().number() + 1) all.push_back(Fd::event());
    getrlimit(RLIMIT_NOFILE, &filled);
    for (int i = 0; i < 20 && made; ++i) {
        all.push_back(Fd::event());
        error = errno;
        made = bool(all.back());
    }
    Fd::make_room(100);
    getrlimit(RLIMIT_NOFILE, &after);
    room = after.rlim_cur > 210;
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(filled.rlim_cur == 100);
    CHECK(made == bool(options().raise_nofile));
    CHECK(room == bool(options().raise_nofile));
    if (!made) CHECK(error == EMFILE);
    if (!made) CHECK(after.rlim_cur == 100);
    CHECK_THAT(no_descriptor_text(EMFILE), Catch::Contains("ulimit -n"));
}

}  // namespace weft::internal::test
