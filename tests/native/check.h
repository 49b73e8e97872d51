// The least a test needs: CHECK(condition) and a name for each claim.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (false)

#define CHECK_THROWS(expression, type)                                                          \
    do {                                                                                        \
        bool thrown = false;                                                                    \
        try {                                                                                   \
            expression;                                                                         \
        } catch (const type &) {                                                                \
            thrown = true;                                                                      \
        }                                                                                       \
        if (!thrown) {                                                                          \
            std::fprintf(stderr, "%s:%d: %s threw no %s\n", __FILE__, __LINE__, #expression, #type); \
            std::exit(1);                                                                       \
        }                                                                                       \
    } while (false)
