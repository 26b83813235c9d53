// catch_main.cpp: main of the tests where Catch2 2 has no prebuilt one.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
