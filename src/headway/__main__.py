from headway.cli.app import main

main()
