// slow_resolver.cpp: for LD_PRELOAD: names that end in slow-resolver.test are looked up without end.
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <string_view>

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** found) {
    while (name && std::string_view(name).ends_with("slow-resolver.test")) pause();
    using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
    static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
    return real(name, service, hints, found);
}
