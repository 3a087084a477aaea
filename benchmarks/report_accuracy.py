"""stub"""


def write(a, b):
    return 0
